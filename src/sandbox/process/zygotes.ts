import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';
import { messageOf, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { spawn } from '../../lib/child-process.ts';
import { within } from '../../lib/deadline.ts';
import { openFilesLimit } from '../../lib/open-files-limit.ts';
import { isTaken } from '../../lib/system-errors.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { wordsOf } from '../host/child-words.ts';
import { sweepGroups } from '../host/control-groups.ts';
import { FrameSocket } from '../host/frame-socket.ts';
import { type Interpreter, Interpreters } from '../host/interpreters.ts';
import type { NetworkOptions } from '../host/network.ts';

const READY_TIMEOUT_MS = 15_000;
const HELLO_TIMEOUT_MS = 5_000;
/** How long a zygote without instances may take to end. */
const RETIRE_TIMEOUT_MS = 5_000;
const CONTROL_SOCKET = '.control.sock';
/** Of starts, for each network that a worker is made in; `later`: of usual ones whose requests come later. */
const START_SOCKETS = {
  usual: '.start.sock',
  later: '.start-later.sock',
  own: '.start-own.sock',
  none: '.start-none.sock',
};
/** Room for the titles that zygote and instances write over the command line. */
const TITLE_SPACE = ' '.repeat(64);

export interface ZygoteOptions {
  /** The server's data directory; zygotes and sandboxes keep their files in `run` below it. */
  readonly dataDir: string;
  /** Sandboxes without code that each zygote keeps ready. */
  readonly spares: number;
  /** A version (`3.11`) → the path of its interpreter. */
  readonly pythons: Readonly<Record<string, string>>;
  /** Where other interpreters are looked for. */
  readonly environment: Environment;
  /** Layers of isolation that are switched off (`namespaces` is all of them that are namespaces). */
  readonly disable: readonly string[];
  /** How long a zygote without instances outlives a server that was killed. */
  readonly idleExitMs: number;
  readonly network: NetworkOptions;
  /** The directory of `rookery_zygote` and `rookery_runtime`. */
  readonly pythonDir: string;
  readonly logger: Logger;
}

/** What a zygote says when a control connection opens. */
interface ZygoteHello {
  readonly pid: number;
  /** `3.11.7` */
  readonly python: string;
  /** The layers that hold in its sandboxes. */
  readonly isolation: readonly string[];
  /** What does not work here, as sentences. */
  readonly degraded: readonly string[];
  /** Whether it may make namespaces without a user namespace. */
  readonly privileged: boolean;
  /** Why its sandboxes cannot have a network of their own that reaches out; null when they can. */
  readonly networkMissing?: string | null;
  /** Directories of the control groups of its sandboxes. */
  readonly groupParents?: readonly string[];
}

/** A zygote that serves. */
export interface Zygote {
  readonly name: string;
  readonly hello: ZygoteHello;
  /** Every connection to one of them is one start. */
  readonly startSockets: Readonly<Record<keyof typeof START_SOCKETS, string>>;
  readonly control: FrameSocket;
}

interface Serving {
  readonly zygote: Promise<Zygote>;
  /** Null until it serves. */
  known: Zygote | null;
}

/** What a zygote is asked for. */
export interface ZygoteNeed {
  /** The Python version; null: any. */
  readonly version: string | null;
  /** The program that its workers start before they are asked for; empty: none. */
  readonly resident: readonly string[];
}

/** Those of programs: a waiting one holds more memory than a fork of Python does. */
const MOST_RESIDENTS = 2;

/** The zygotes of this server, one per interpreter version and resident program, each started when it is first needed. */
export class Zygotes {
  readonly #options: ZygoteOptions;
  readonly #interpreters: Interpreters;
  readonly #serving = new Map<string, Serving>();
  #fingerprint: Promise<string> | undefined;
  readonly #groupParents = new Set<string>();
  #isClosed = false;

  constructor(options: ZygoteOptions) {
    this.#options = options;
    this.#interpreters = new Interpreters(options.pythons, options.environment);
  }

  get runDir(): string {
    return join(this.#options.dataDir, 'run');
  }

  /** The zygote of this Python version; of any when `version` is null. Bounded; fails with `failed_precondition` or `unavailable`. */
  async get({ version, resident }: ZygoteNeed): Promise<Zygote> {
    if (this.#isClosed) throw unavailable('the process driver is closed');
    if (version === null) {
      const key = keyOf('', resident);
      for (const [name, running] of this.#serving) if (name.endsWith(key)) return await running.zygote;
      const { version: found } = await this.#interpreters.findAny();
      return await this.get({ version: found, resident });
    }
    const key = keyOf(version, resident);
    let serving = this.#serving.get(key);
    if (serving === undefined) {
      const begun: Serving = { zygote: this.#connect(version, resident), known: null };
      this.#serving.set(key, begun);
      begun.zygote.then(
        zygote => {
          begun.known = zygote;
          this.#watch(version, zygote);
        },
        () => this.#serving.delete(key),
      );
      serving = begun;
    }
    return await serving.zygote;
  }

  /** Python versions whose zygotes an earlier server left. */
  async versionsLeft(): Promise<readonly string[]> {
    const names = await zygotesIn(this.runDir);
    return [...new Set(names.flatMap(name => /^py(\d+\.\d+)-/.exec(name)?.[1] ?? []))];
  }

  /** The zygote to go on with after a start that `tried` did not answer: itself when it still lives, else a new one. */
  async getOther(need: ZygoteNeed, tried: Zygote): Promise<Zygote> {
    const probe = await FrameSocket.connect(tried.startSockets.usual).catch(() => null);
    if (probe !== null) {
      // Nothing was asked over it: the worker that gets it ends, and another one is made.
      probe.close();
      return tried;
    }
    tried.control.close();
    this.#forget(tried);
    return await this.get(need);
  }

  /**
   * Tells the zygotes that this server ends, also those of an earlier server or version that it never spoke to. Those without
   * instances end too; returns when they have.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const served = await Promise.allSettled(Array.from(this.#serving.values(), ({ zygote }) => zygote));
    const controls = served.flatMap(result => (result.status === 'fulfilled' ? [result.value.control] : []));
    const known = new Set(served.map(result => (result.status === 'fulfilled' ? result.value.name : '')));
    for (const name of await zygotesIn(this.runDir)) {
      if (known.has(name)) continue;
      const control = await FrameSocket.connect(join(this.runDir, `${name}${CONTROL_SOCKET}`)).catch(() => null);
      if (control !== null) controls.push(control);
    }
    await Promise.allSettled(controls.map(retire));
    // Zygotes that were killed could not report the groups of their workers.
    await sweepGroups(this.#groupParents);
  }

  #watch(version: string, zygote: Zygote): void {
    void zygote.control.next().then(frame => {
      // Nothing is asked over this connection but to retire, so whatever comes is its end.
      zygote.control.close();
      this.#forget(zygote);
      if (this.#isClosed) return;
      this.#options.logger.warn({ version, pid: zygote.hello.pid, frame: frame?.toString() }, 'a zygote has ended');
    });
  }

  /**
   * The next one that asks for its version gets another. At once, and only while it has its place: its successor, once forgotten, would be
   * connected to a second time, and a zygote with two connections is not asked to end by its last server.
   */
  #forget(zygote: Zygote): void {
    for (const [version, { known }] of this.#serving) if (known === zygote) this.#serving.delete(version);
  }

  async #connect(version: string, resident: readonly string[]): Promise<Zygote> {
    const interpreter = await this.#interpreters.find(version);
    await this.#makeRunDir();
    // Its code and its settings are part of the name: after an upgrade a new one starts beside the old one,
    // whose instances live on.
    const suffix = await this.#nameSuffix(interpreter, resident);
    const name = `${resident.length === 0 ? 'py' : 'program'}${version}-${suffix}`;
    const socket = join(this.runDir, `${name}${CONTROL_SOCKET}`);
    let opened = await openControl(socket);
    if (opened === null) {
      await this.#spawn(name, interpreter, resident);
      opened = await openControl(socket);
    }
    if (opened === null) throw unavailable(`the zygote ${name} does not answer; its log is in ${this.runDir}`);
    const { control, hello } = opened;
    control.unref();
    const startSocket = (kind: keyof typeof START_SOCKETS) => join(this.runDir, `${name}${START_SOCKETS[kind]}`);
    const startSockets = {
      usual: startSocket('usual'),
      later: startSocket('later'),
      own: startSocket('own'),
      none: startSocket('none'),
    };
    for (const parent of hello.groupParents ?? []) this.#groupParents.add(parent);
    return { name, hello, startSockets, control };
  }

  /** In a data directory that is there: one that was removed is not made again, half and for nobody. */
  async #makeRunDir(): Promise<void> {
    await mkdir(this.runDir, { mode: 0o700 }).catch(error => {
      if (isTaken(error)) return;
      throw unavailable(`the data directory cannot be used: ${messageOf(error)}`, { cause: error });
    });
  }

  async #nameSuffix(interpreter: Interpreter, resident: readonly string[]): Promise<string> {
    this.#fingerprint ??= fingerprintOf(this.#options.pythonDir);
    const { dataDir, spares, disable, idleExitMs, network } = this.#options;
    const settings = JSON.stringify([
      await this.#fingerprint,
      interpreter.path,
      dataDir,
      spares,
      disable,
      idleExitMs,
      network,
      resident,
      // A zygote keeps the limit of the server that started it, and sandboxes need theirs.
      await openFilesLimit(),
    ]);
    return createHash('sha256').update(settings).digest('hex').slice(0, 8);
  }

  /** Starts it in a session of its own, so that it outlives this process; returns when it serves. */
  async #spawn(name: string, interpreter: Interpreter, resident: readonly string[]): Promise<void> {
    const { dataDir, spares, disable, idleExitMs, network, pythonDir } = this.#options;
    const logPath = join(this.runDir, `${name}.log`);
    const log = await open(logPath, 'w', 0o600);
    try {
      const child = spawn(interpreter.path, ['-I', join(pythonDir, 'rookery_zygote', '__main__.py'), TITLE_SPACE], {
        cwd: '/',
        // Nothing of the server's environment: it would be in the memory of every instance.
        env: { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8' },
        detached: true,
        stdio: ['pipe', log.fd, log.fd, 'pipe'],
      });
      const config = {
        name,
        runDir: this.runDir,
        dataDir,
        spares: resident.length === 0 ? spares : Math.min(spares, MOST_RESIDENTS),
        disable,
        idleExitMs,
        ...(resident.length === 0 ? {} : { resident: { argv: resident, maxOpenFiles: LIMITS.openFiles } }),
        network: { range: network.range, always: network.use === 'own', setForwarding: network.setForwarding },
        hostPaths: [pythonDir],
        logBytes: LIMITS.logFileBytes,
        logFiles: LIMITS.logFiles,
      };
      child.stdin?.on('error', () => undefined);
      child.stdin?.end(JSON.stringify(config));
      const said = await within(wordsOf(child, 'the zygote'), READY_TIMEOUT_MS, 'the zygote did not start in time');
      if (said === '') {
        const text = (await readFile(logPath, 'utf8')).trim().split('\n').slice(-3).join(' ');
        throw unavailable(`the zygote for Python ${interpreter.version} (${interpreter.path}) did not start: ${text}`);
      }
      child.unref();
      this.#options.logger.info({ name, pid: child.pid, interpreter: interpreter.path }, 'a zygote has started');
    } finally {
      await log.close();
    }
  }
}

/** Ends with what a need without a version has. */
function keyOf(version: string, resident: readonly string[]): string {
  return `${version} ${JSON.stringify(resident)}`;
}

/** A control connection and what the zygote says of itself; null when none serves there. */
async function openControl(socket: string): Promise<{ control: FrameSocket; hello: ZygoteHello } | null> {
  const control = await FrameSocket.connect(socket).catch(() => null);
  if (control === null) return null;
  try {
    const hello = await within(control.nextMessage(), HELLO_TIMEOUT_MS, 'the zygote did not answer in time');
    if (hello !== null) return { control, hello: hello as unknown as ZygoteHello };
  } catch (error) {
    control.close();
    throw error;
  }
  // It was just ending.
  control.close();
  return null;
}

/** Names of zygotes that serve there, or did until they were killed. */
async function zygotesIn(runDir: string): Promise<readonly string[]> {
  const names = await readdir(runDir).catch(() => []);
  return names.filter(name => name.endsWith(CONTROL_SOCKET)).map(name => name.slice(0, -CONTROL_SOCKET.length));
}

/** Asked without waiting for a word from it: one that cannot answer now (it is stopped, the machine is busy) reads this when it can. */
async function retire(control: FrameSocket): Promise<void> {
  try {
    control.send({ op: 'retire' });
    await within(control.drain(), RETIRE_TIMEOUT_MS, 'the zygote did not let go in time');
  } finally {
    control.close();
  }
}

async function fingerprintOf(pythonDir: string): Promise<string> {
  const hash = createHash('sha256');
  for (const name of ['rookery_zygote', 'rookery_runtime', 'rookery_zygote/bin']) {
    const directory = join(pythonDir, name);
    for (const file of (await readdir(directory)).filter(entry => /\.py$|^(init|fork)-/.test(entry)).sort()) {
      hash.update(file).update(await readFile(join(directory, file)));
    }
  }
  return hash.digest('hex');
}

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';
import { messageOf, unavailable } from '../../core/error.ts';

import { LIMITS } from '../../core/limits.ts';
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
const START_SOCKET = '.start.sock';
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
  readonly hello: ZygoteHello;
  /** Every connection to it is one start. */
  readonly startSocket: string;
  readonly control: FrameSocket;
}

/** The zygotes of this server, one per interpreter version, each started when it is first needed. */
export class Zygotes {
  readonly #options: ZygoteOptions;
  readonly #interpreters: Interpreters;
  readonly #serving = new Map<string, Promise<Zygote>>();
  #fingerprint: Promise<string> | undefined;
  readonly #groupParents = new Set<string>();
  #hasLostOne = false;
  #isClosed = false;

  constructor(options: ZygoteOptions) {
    this.#options = options;
    this.#interpreters = new Interpreters(options.pythons, options.environment);
  }

  get runDir(): string {
    return join(this.#options.dataDir, 'run');
  }

  /** The zygote of this Python version; of any when `version` is null. Bounded; fails with `failed_precondition` or `unavailable`. */
  async get(version: string | null): Promise<Zygote> {
    if (this.#isClosed) throw unavailable('the process driver is closed');
    if (version === null) {
      const [running] = this.#serving.values();
      if (running !== undefined) return await running;
      const { version: found } = await this.#interpreters.findAny();
      return await this.get(found);
    }
    let serving = this.#serving.get(version);
    if (serving === undefined) {
      serving = this.#connect(version);
      this.#serving.set(version, serving);
      serving.then(
        zygote => this.#watch(version, zygote),
        () => this.#serving.delete(version),
      );
    }
    return await serving;
  }

  /** Python versions whose zygotes an earlier server left. */
  async versionsLeft(): Promise<readonly string[]> {
    const names = await zygotesIn(this.runDir);
    return [...new Set(names.flatMap(name => /^py(\d+\.\d+)-/.exec(name)?.[1] ?? []))];
  }

  /** The zygote to go on with after a start that `tried` did not answer: itself when it still lives, else a new one. */
  async getOther(version: string | null, tried: Zygote): Promise<Zygote> {
    const probe = await FrameSocket.connect(tried.startSocket).catch(() => null);
    if (probe !== null) {
      // Nothing was asked over it: the worker that gets it ends, and another one is made.
      probe.close();
      return tried;
    }
    tried.control.close();
    for (const [known, serving] of this.#serving) {
      if ((await serving.catch(() => null)) === tried) this.#serving.delete(known);
    }
    return await this.get(version);
  }

  /**
   * Tells the zygotes that this server ends, also those of an earlier server or version that it never spoke to. Those without
   * instances end too; returns when they have.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const served = await Promise.allSettled(this.#serving.values());
    const controls = served.flatMap(result => (result.status === 'fulfilled' ? [result.value.control] : []));
    const known = new Set(served.map(result => (result.status === 'fulfilled' ? result.value.startSocket : '')));
    for (const name of await zygotesIn(this.runDir)) {
      if (known.has(join(this.runDir, `${name}${START_SOCKET}`))) continue;
      const opened = await openControl(join(this.runDir, `${name}${CONTROL_SOCKET}`)).catch(() => null);
      if (opened !== null) controls.push(opened.control);
    }
    await Promise.allSettled(controls.map(retire));
    // Those that were killed have told nobody of the groups of their workers.
    if (this.#hasLostOne) await sweepGroups(this.#groupParents);
  }

  #watch(version: string, zygote: Zygote): void {
    void zygote.control.next().then(async frame => {
      // Nothing is asked over this connection but to retire, so whatever comes is its end.
      zygote.control.close();
      if ((await this.#serving.get(version)?.catch(() => null)) === zygote) this.#serving.delete(version);
      if (this.#isClosed) return;
      this.#hasLostOne = true;
      this.#options.logger.warn({ version, pid: zygote.hello.pid, frame: frame?.toString() }, 'a zygote has ended');
    });
  }

  async #connect(version: string): Promise<Zygote> {
    const interpreter = await this.#interpreters.find(version);
    await this.#makeRunDir();
    // Its code and its settings are part of the name: after an upgrade a new one starts beside the old one,
    // whose instances live on.
    const name = `py${version}-${await this.#nameSuffix(interpreter)}`;
    const socket = join(this.runDir, `${name}${CONTROL_SOCKET}`);
    let opened = await openControl(socket);
    if (opened === null) {
      await this.#spawn(name, interpreter);
      opened = await openControl(socket);
    }
    if (opened === null) throw unavailable(`the zygote ${name} does not answer; its log is in ${this.runDir}`);
    const { control, hello } = opened;
    control.unref();
    const startSocket = join(this.runDir, `${name}${START_SOCKET}`);
    for (const parent of hello.groupParents ?? []) this.#groupParents.add(parent);
    return { hello, startSocket, control };
  }

  /** In a data directory that is there: one that was removed is not made again, half and for nobody. */
  async #makeRunDir(): Promise<void> {
    await mkdir(this.runDir, { mode: 0o700 }).catch(error => {
      if (isTaken(error)) return;
      throw unavailable(`the data directory cannot be used: ${messageOf(error)}`, { cause: error });
    });
  }

  async #nameSuffix(interpreter: Interpreter): Promise<string> {
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
      // A zygote keeps the limit of the server that started it, and sandboxes need theirs.
      await openFilesLimit(),
    ]);
    return createHash('sha256').update(settings).digest('hex').slice(0, 8);
  }

  /** Starts it in a session of its own, so that it outlives this process; returns when it serves. */
  async #spawn(name: string, interpreter: Interpreter): Promise<void> {
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
        spares,
        disable,
        idleExitMs,
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

async function retire(control: FrameSocket): Promise<void> {
  try {
    control.send({ op: 'retire' });
    await within(control.next(), RETIRE_TIMEOUT_MS, 'the zygote did not let go in time');
  } finally {
    control.close();
  }
}

async function fingerprintOf(pythonDir: string): Promise<string> {
  const hash = createHash('sha256');
  for (const name of ['rookery_zygote', 'rookery_runtime']) {
    const directory = join(pythonDir, name);
    for (const file of (await readdir(directory)).filter(entry => entry.endsWith('.py')).sort()) {
      hash.update(file).update(await readFile(join(directory, file)));
    }
  }
  return hash.digest('hex');
}

import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from '../../core/environment.ts';
import { messageOf, PartAway, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { spawn } from '../../lib/child-process.ts';
import { within } from '../../lib/deadline.ts';
import { openFilesLimit } from '../../lib/open-files-limit.ts';
import { isTaken } from '../../lib/system-errors.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { readChildOutput } from '../host/child-output.ts';
import { sweepGroups } from '../host/control-groups.ts';
import { FrameSocket } from '../host/frame-socket.ts';
import { type Interpreter, Interpreters } from '../host/interpreters.ts';
import type { NetworkOptions } from '../host/network.ts';

const READY_TIMEOUT_MS = 15_000;
const HELLO_TIMEOUT_MS = 5_000;
/** Time limit for a zygote without instances to end. */
const RETIRE_TIMEOUT_MS = 5_000;
const CONTROL_SOCKET = '.control.sock';
/**
 * Names of start sockets, one per network of the worker. `later` is for usual starts whose requests come
 * later.
 */
const START_SOCKETS = {
  usual: '.start.sock',
  later: '.start-later.sock',
  own: '.start-own.sock',
  none: '.start-none.sock',
};
/** Space for the titles that zygote and instances write over the command line. */
const TITLE_SPACE = ' '.repeat(64);

export interface ZygoteOptions {
  /** The server's data directory. Zygotes and sandboxes keep their files in `run` below it. */
  readonly dataDir: string;
  /** Number of sandboxes without code that each zygote keeps ready. */
  readonly spares: number;
  /** Paths of interpreters by Python version (`3.11`). */
  readonly pythons: Readonly<Record<string, string>>;
  /** The environment that says where to search for other interpreters. */
  readonly environment: Environment;
  /** Layers of isolation to disable; `namespaces` means all namespaces. */
  readonly disable: readonly string[];
  /** Time that a zygote without instances outlives a killed server. */
  readonly idleExitMs: number;
  readonly network: NetworkOptions;
  /** The directory of `rookery_zygote` and `rookery_runtime`. */
  readonly pythonDir: string;
  readonly logger: Logger;
}

/** The first message of a zygote on a control connection. */
interface ZygoteHello {
  readonly pid: number;
  /** Full Python version, for example `3.11.7`. */
  readonly python: string;
  /** The layers that work in its sandboxes. */
  readonly isolation: readonly string[];
  /** Sentences about features that do not work here. */
  readonly degraded: readonly string[];
  /** True when the zygote may make namespaces without a user namespace. */
  readonly privileged: boolean;
  /**
   * The reason its sandboxes cannot have their own network with access to the outside; null when they can.
   */
  readonly networkMissing?: string | null;
  /** Parent directories of its sandboxes' control groups. */
  readonly groupParents?: readonly string[];
}

/** A running zygote. */
export interface Zygote {
  readonly name: string;
  readonly hello: ZygoteHello;
  /** Paths of the start sockets. Each connection to one of them is one start. */
  readonly startSockets: Readonly<Record<keyof typeof START_SOCKETS, string>>;
  readonly control: FrameSocket;
}

interface Serving {
  readonly zygote: Promise<Zygote>;
  /** The zygote once it has answered; null before. */
  known: Zygote | null;
}

/** The kind of zygote that a start needs. */
export interface ZygoteNeed {
  /** The Python version; null: any. */
  readonly version: string | null;
  /** The program that its workers start in advance; empty: none. */
  readonly resident: readonly string[];
  /** The only tenant whose sandboxes are forked from the zygote; empty: all tenants. */
  readonly tenant: string;
}

/** Maximum number of waiting resident programs: each holds more memory than a fork of Python. */
const MOST_RESIDENTS = 2;

/**
 * The zygotes of this server, one per interpreter version and resident program. Each starts when first
 * needed.
 */
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

  /**
   * Returns a zygote for the need; any version when `version` is null. Takes bounded time.
   * Fails with `failed_precondition` or `unavailable`.
   */
  async get(need: ZygoteNeed): Promise<Zygote> {
    const { version } = need;
    if (this.#isClosed) throw unavailable('the process driver is closed');
    if (version === null) {
      const key = keyOf('', need);
      for (const [name, running] of this.#serving) if (name.endsWith(key)) return await running.zygote;
      const { version: found } = await this.#interpreters.findAny();
      return await this.get({ ...need, version: found });
    }
    const key = keyOf(version, need);
    let serving = this.#serving.get(key);
    if (serving === undefined) {
      const begun: Serving = { zygote: this.#connect(version, need), known: null };
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

  /** Returns Python versions whose zygotes an earlier server left. */
  async versionsLeft(): Promise<readonly string[]> {
    const names = await zygotesIn(this.runDir);
    return [...new Set(names.flatMap(name => /^py(\d+\.\d+)-/.exec(name)?.[1] ?? []))];
  }

  /** Returns a zygote after `tried` did not answer a start: `tried` itself if it is alive, else a new one. */
  async getOther(need: ZygoteNeed, tried: Zygote): Promise<Zygote> {
    const probe = await FrameSocket.connect(tried.startSockets.usual).catch(() => null);
    if (probe !== null) {
      // The probe sent no request: its worker ends, and the zygote forks another one.
      probe.close();
      return tried;
    }
    tried.control.close();
    this.#forget(tried);
    return await this.get(need);
  }

  /**
   * Tells all zygotes in the run directory that this server ends, including those of earlier servers and
   * versions.
   * Returns when those without instances have ended too.
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
    // Killed zygotes could not report the groups of their workers.
    await sweepGroups(this.#groupParents);
  }

  #watch(version: string, zygote: Zygote): void {
    void zygote.control.next().then(frame => {
      // The only request on this connection is to retire, so any frame or end means that the zygote ends.
      zygote.control.close();
      this.#forget(zygote);
      if (this.#isClosed) return;
      this.#options.logger.warn({ version, pid: zygote.hello.pid, frame: frame?.toString() }, 'zygote ended');
    });
  }

  /**
   * Removes a zygote, so that the next need of its version gets another. Only the current entry is removed.
   * Synchronous: if its successor were removed, a second connection to it would open. A zygote with two
   * connections is not told to end by its last server.
   */
  #forget(zygote: Zygote): void {
    for (const [version, { known }] of this.#serving) if (known === zygote) this.#serving.delete(version);
  }

  async #connect(version: string, need: ZygoteNeed): Promise<Zygote> {
    const { resident } = need;
    const interpreter = await this.#interpreters.find(version);
    await this.#makeRunDir();
    // The name contains a hash of code and settings. After an upgrade a new zygote starts next to the old
    // one, whose instances continue.
    const suffix = await this.#nameSuffix(interpreter, need);
    const name = `${resident.length === 0 ? 'py' : 'program'}${version}-${suffix}`;
    const socket = join(this.runDir, `${name}${CONTROL_SOCKET}`);
    let opened = await openControl(socket);
    if (opened === null) {
      await this.#spawn(name, interpreter, resident);
      opened = await openControl(socket);
    }
    if (opened === null) throw new PartAway(`the zygote ${name} does not answer; its log is in ${this.runDir}`);
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

  /** Creates `run` in the data directory, but never a data directory that was removed. */
  async #makeRunDir(): Promise<void> {
    await mkdir(this.runDir, { mode: 0o700 }).catch(error => {
      if (isTaken(error)) return;
      throw new PartAway(`the data directory cannot be used: ${messageOf(error)}`, { cause: error });
    });
  }

  async #nameSuffix(interpreter: Interpreter, { resident, tenant }: ZygoteNeed): Promise<string> {
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
      tenant,
      // A zygote keeps the open-files limit of the server that started it, and sandboxes inherit the limit.
      await openFilesLimit(),
    ]);
    return createHash('sha256').update(settings).digest('hex').slice(0, 8);
  }

  /** Fails with a reason when the data directory's disk is full: the zygote cannot log why it ended then. */
  async #assertRoom({ version }: Interpreter): Promise<void> {
    const { bavail, ffree, files } = await statfs(this.runDir);
    if (bavail > 0 && (ffree > 0 || files === 0)) return;
    throw new PartAway(
      `the disk is full: the zygote for Python ${version} cannot start in the data directory; make room`,
    );
  }

  /**
   * Starts the zygote in its own session, so that it outlives this process. Returns when the zygote serves.
   */
  async #spawn(name: string, interpreter: Interpreter, resident: readonly string[]): Promise<void> {
    const { dataDir, spares, disable, idleExitMs, network, pythonDir } = this.#options;
    const logPath = join(this.runDir, `${name}.log`);
    const log = await open(logPath, 'w', 0o600);
    try {
      const child = spawn(interpreter.path, ['-I', join(pythonDir, 'rookery_zygote', '__main__.py'), TITLE_SPACE], {
        cwd: '/',
        // The server's environment is left out: it would be in the memory of every instance.
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
      const said = await within(
        readChildOutput(child, 'the zygote'),
        READY_TIMEOUT_MS,
        'the zygote did not start in time',
      );
      if (said === '') {
        await this.#assertRoom(interpreter);
        const text = (await readFile(logPath, 'utf8')).trim().split('\n').slice(-3).join(' ');
        throw new PartAway(
          `the zygote for Python ${interpreter.version} (${interpreter.path}) did not start: ${text || 'it said nothing'}`,
        );
      }
      child.unref();
      this.#options.logger.info({ name, pid: child.pid, interpreter: interpreter.path }, 'zygote started');
    } finally {
      await log.close();
    }
  }
}

/** Returns the map key of a need. Keys of all versions end with the key of a need without a version. */
function keyOf(version: string, { resident, tenant }: Omit<ZygoteNeed, 'version'>): string {
  return `${version} ${JSON.stringify([tenant, resident])}`;
}

/** Opens a control connection and reads the zygote's hello; null when none serves at `socket`. */
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
  // The zygote was just ending.
  control.close();
  return null;
}

/** Returns the names of zygotes that serve in `runDir`, or did until they were killed. */
async function zygotesIn(runDir: string): Promise<readonly string[]> {
  const names = await readdir(runDir).catch(() => []);
  return names.filter(name => name.endsWith(CONTROL_SOCKET)).map(name => name.slice(0, -CONTROL_SOCKET.length));
}

/**
 * Tells a zygote to end. Sends without waiting for its hello: a stopped or busy zygote reads the request
 * later.
 */
async function retire(control: FrameSocket): Promise<void> {
  try {
    control.send({ op: 'retire' });
    await within(control.drain(), RETIRE_TIMEOUT_MS, 'the zygote did not finish in time');
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

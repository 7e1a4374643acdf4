import { randomBytes } from 'node:crypto';
import { readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { deadlineExceeded, messageOf, unavailable } from '../../core/error.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { readState } from '../host/handle.ts';
import type { Interpreters } from '../host/interpreters.ts';
import type { NetworkOptions } from '../host/network.ts';
import { ControlSocket, isServed, socketOf } from './control-socket.ts';
import type { Programs } from './programs.ts';
import { dismissShim, type KnownLayers, launchShim, type Shim } from './shim.ts';

/** Maximum number of parallel launches. More would only wait for each other. */
const MOST_LAUNCHES = 8;
/** Number of consecutive failures after which spares are made only on demand. */
const MOST_FAILURES = 2;

export interface ShimsOptions {
  readonly runDir: string;
  readonly dataDir: string;
  readonly pythonDir: string;
  /** Number of waiting shims for each interpreter in use. */
  readonly spares: number;
  readonly disable: readonly string[];
  readonly network: NetworkOptions;
  readonly interpreters: Interpreters;
  readonly programs: Programs;
  readonly removals: Removals;
  readonly logger: Logger;
}

interface Waiter {
  /** Number of launches that had begun before this waiter. */
  readonly since: number;
  readonly resolve: (shim: Shim) => void;
  readonly reject: (error: unknown) => void;
}

/** The shims of a Python version. */
interface Shelf {
  readonly version: string;
  readonly ready: Shim[];
  readonly waiting: Waiter[];
  launching: number;
  failures: number;
}

/**
 * Shims that wait for an instance.
 * A cold start of Python and the runtime takes longer than the rest of a create, so shims are started in
 * advance.
 */
export class Shims {
  /** Distinguishes the programs of this server from those of an earlier one. */
  readonly owner = randomBytes(4).toString('hex');
  readonly #options: ShimsOptions;
  readonly #shelves = new Map<string, Shelf>();
  readonly #socket: ControlSocket;
  readonly #dismissals = new Set<Promise<void>>();
  readonly #launches = new Set<Promise<void>>();
  #listening: Promise<void> | null = null;
  #layers: { readonly supervisorPid: number; readonly layers: KnownLayers } | null = null;
  #count = 0;
  #isClosed = false;

  constructor(options: ShimsOptions) {
    this.#options = options;
    this.#socket = new ControlSocket(socketOf(options.runDir, this.owner));
  }

  /**
   * Returns a waiting shim, or the next one that is ready. `version` null: any interpreter.
   * Fails like `launchShim`, and with `deadline_exceeded` and `tooLate` after `timeoutMs` or when `signal`
   * aborts.
   */
  async claim(version: string | null, timeoutMs: number, tooLate: string, signal?: AbortSignal): Promise<Shim> {
    const shelf = this.#shelfOf(version ?? this.#anyVersion() ?? (await this.#options.interpreters.findAny()).version);
    if (this.#isClosed) throw unavailable('the supervisor driver is closed');
    if (signal?.aborted) throw deadlineExceeded(tooLate);
    const ready = shelf.ready.shift();
    if (ready !== undefined) return ready;
    let release = () => {};
    const taking = new Promise<Shim>((resolve, reject) => {
      const waiter: Waiter = { since: this.#count, resolve, reject };
      const giveUp = () => {
        const index = shelf.waiting.indexOf(waiter);
        // A shim that was transferred at this moment counts as taken.
        if (index < 0) return;
        shelf.waiting.splice(index, 1);
        reject(deadlineExceeded(tooLate));
      };
      const timer = setTimeout(giveUp, timeoutMs);
      signal?.addEventListener('abort', giveUp, { once: true });
      release = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', giveUp);
      };
      shelf.waiting.push(waiter);
    });
    this.#fill(shelf, 0);
    return await taking.finally(release);
  }

  /** Returns an unused shim. */
  returnUnused(shim: Shim): void {
    this.#hand(this.#shelfOf(shim.version), shim);
  }

  /** Makes the first shims of a version. */
  warm(version: string): void {
    this.#fill(this.#shelfOf(version), this.#options.spares);
  }

  /** Makes missing spares. Called after a start, because making a shim competes with starts for CPU. */
  refill(version: string | null): void {
    const shelf = this.#shelves.get(version ?? this.#anyVersion() ?? '');
    if (shelf !== undefined && shelf.failures < MOST_FAILURES) this.#fill(shelf, this.#options.spares);
  }

  /** Ends all waiting shims. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const shelf of this.#shelves.values()) {
      for (const waiter of shelf.waiting.splice(0)) waiter.reject(unavailable('the supervisor driver is closed'));
      for (const shim of shelf.ready.splice(0)) this.#dismiss(shim);
    }
    await Promise.allSettled(this.#launches);
    await Promise.allSettled(this.#dismissals);
    await this.#listening?.catch(() => undefined);
    await this.#socket.close();
  }

  #shelfOf(version: string): Shelf {
    let shelf = this.#shelves.get(version);
    if (shelf === undefined) {
      shelf = { version, ready: [], waiting: [], launching: 0, failures: 0 };
      this.#shelves.set(version, shelf);
    }
    return shelf;
  }

  #anyVersion(): string | undefined {
    return [...this.#shelves.values()].find(shelf => shelf.ready.length > 0 || shelf.launching > 0)?.version;
  }

  #fill(shelf: Shelf, spares: number): void {
    const missing = () => shelf.waiting.length + Math.max(0, spares - shelf.ready.length) - shelf.launching;
    while (!this.#isClosed && shelf.launching < MOST_LAUNCHES && missing() > 0) {
      shelf.launching += 1;
      const launch = this.#launch(shelf).finally(() => {
        shelf.launching -= 1;
        this.#launches.delete(launch);
        this.#fill(shelf, 0);
      });
      this.#launches.add(launch);
    }
  }

  async #launch(shelf: Shelf): Promise<void> {
    const { interpreters, programs, runDir, logger } = this.#options;
    this.#count += 1;
    const number = this.#count;
    try {
      const interpreter = await interpreters.find(shelf.version);
      this.#listening ??= this.#socket.listen();
      await this.#listening;
      const shim = await launchShim({
        ...this.#options,
        program: `${programs.prefix}${this.owner}-${number}`,
        version: shelf.version,
        interpreter: interpreter.path,
        layersOf: pid => (pid === null || this.#layers?.supervisorPid === pid ? (this.#layers?.layers ?? null) : null),
        socket: this.#socket,
      });
      if (this.#layers === null) void sweepGroups(programs, runDir, this.owner, shim.hello.layers);
      this.#layers = { supervisorPid: shim.hello.supervisorPid, layers: shim.hello.layers };
      shelf.failures = 0;
      this.#hand(shelf, shim);
    } catch (error) {
      shelf.failures += 1;
      // Later waiters do not fail with this error, because a launch is still to follow for them.
      const index = shelf.waiting.findIndex(waiter => waiter.since < number);
      const [waiter] = index < 0 ? [] : shelf.waiting.splice(index, 1);
      if (waiter !== undefined) waiter.reject(error);
      else logger.warn({ version: shelf.version, error: messageOf(error) }, 'cannot prepare supervised sandbox');
    }
  }

  /**
   * Transfers the shim to the waiter that waits longest. Without one, the shim becomes a spare if one is
   * missing.
   */
  #hand(shelf: Shelf, shim: Shim): void {
    const waiter = shelf.waiting.shift();
    if (waiter !== undefined) {
      waiter.resolve(shim);
      return;
    }
    if (this.#isClosed || shelf.ready.length >= this.#options.spares) {
      this.#dismiss(shim);
      return;
    }
    shelf.ready.push(shim);
    void shim.reply
      .catch(() => null)
      .then(() => {
        const index = shelf.ready.indexOf(shim);
        if (index < 0) return;
        // The shim got no request, so the shim or supervisord has ended.
        shelf.ready.splice(index, 1);
        this.#dismiss(shim);
      });
  }

  #dismiss(shim: Shim): void {
    const dismissal = dismissShim(shim, this.#options)
      .catch(error => {
        this.#options.logger.warn(
          { program: shim.program, error: messageOf(error) },
          'removal of a supervised program without an instance failed',
        );
      })
      .finally(() => this.#dismissals.delete(dismissal));
    this.#dismissals.add(dismissal);
  }
}

const OWNER = /^([0-9a-f]{8})(?:-\d+)?$/;

/**
 * Removes the residue of ended servers of this data directory: programs without an instance, and their files.
 * Instances stay: their records decide. Never rejects.
 */
export async function sweep(
  programs: Programs,
  runDir: string,
  owner: string,
  removals: Removals,
  logger: Logger,
): Promise<void> {
  try {
    const names = await programs.list();
    // Read after the programs: a program that becomes an instance meanwhile is then in the list.
    const instances = await programsOfInstances(runDir);
    const files = await readdir(runDir).catch(() => []);
    const sockets = files.flatMap(file => /^([0-9a-f]{8})\.sock$/.exec(file)?.[1] ?? []);
    const alive = new Set([owner]);
    for (const other of sockets) {
      if (other !== owner && (await isServed(socketOf(runDir, other)))) alive.add(other);
    }
    const isLeft = (name: string) => {
      const found = OWNER.exec(name.slice(programs.prefix.length))?.[1];
      return name.startsWith(programs.prefix) && found !== undefined && !alive.has(found) && !instances.has(name);
    };
    for (const name of names.filter(isLeft)) {
      await programs.remove(name);
      logger.info({ program: name }, 'removed supervised program of an earlier server');
    }
    // The directory has the name of earlier versions, whose files are removed too.
    const workers = join(runDir, 'spares');
    for (const name of (await readdir(workers).catch(() => [])).filter(isLeft)) {
      await removals.remove(join(workers, name));
    }
    for (const other of sockets.filter(found => !alive.has(found))) await rm(socketOf(runDir, other), { force: true });
  } catch (error) {
    logger.warn({ error: messageOf(error) }, 'cannot remove all programs of earlier servers from supervisord');
  }
}

/**
 * Removes the control groups of killed shims, except those of instances. Never rejects.
 * The kernel refuses to remove a group in which a process runs.
 */
export async function sweepGroups(
  programs: Programs,
  runDir: string,
  owner: string,
  layers: KnownLayers,
): Promise<void> {
  const { prefix } = programs;
  const instances = await programsOfInstances(runDir);
  for (const parent of new Set(Object.values(layers.places).map(([, path]) => path))) {
    const names = await readdir(parent).catch(() => []);
    for (const name of names) {
      const isOwn = name.startsWith(`${prefix}${owner}-`);
      if (name.startsWith(prefix) && !isOwn && !instances.has(name))
        await rmdir(join(parent, name)).catch(() => undefined);
    }
  }
}

async function programsOfInstances(runDir: string): Promise<ReadonlySet<string>> {
  const directory = join(runDir, 'instances');
  const ids = await readdir(directory).catch(() => []);
  const states = await Promise.all(ids.map(id => readState(join(directory, id))));
  return new Set(states.flatMap(state => (state === null ? [] : [state.launcher])));
}

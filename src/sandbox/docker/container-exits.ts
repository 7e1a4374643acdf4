import type { Readable } from 'node:stream';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { endsWithin } from '../../lib/deadline.ts';
import { sharedController } from '../../lib/linked-signal.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { ExitResult } from '../driver.ts';
import { type Engine, LABEL_INSTALLATION, statusOf } from './engine.ts';

const RETRY = { firstMs: 200, longestMs: 5_000 };
/** Longest wait for the event `oom` after the end of a killed container. Docker sends both in any order. */
const OUT_OF_MEMORY_MS = 500;
const STOPPED = 'stopped through docker';
const REMOVED = 'removed through docker';

/** Line of the event stream. */
interface ContainerEvent {
  readonly Action?: string;
  readonly Actor?: { readonly ID?: string; readonly Attributes?: Readonly<Record<string, string>> };
}

interface Watched {
  readonly promise: Promise<ExitResult>;
  /** True when this server has sent a signal or is removing the container. */
  isEndedByUs: boolean;
  /** True when the container received a signal, from whatever source. */
  isStopped: boolean;
  /** Resolves when the container exceeds its memory. */
  readonly outOfMemory: Promise<void>;
  exceedsMemory(): void;
  resolve(exit: ExitResult): void;
  reject(error: Error): void;
}

/**
 * Reports the ends of containers through one event stream, which opens with the first watched container.
 * Waits continue while the daemon restarts. After the restart every watched container is inspected, so that
 * no end is missed.
 */
export class Exits {
  readonly #engine: Engine;
  readonly #installation: string;
  readonly #logger: Logger;
  readonly #watched = new Map<string, Watched>();
  readonly #closing = sharedController();
  #opening: Promise<void> | undefined;
  #stream: Readable | undefined;

  constructor(engine: Engine, installation: string, logger: Logger) {
    this.#engine = engine;
    this.#installation = installation;
    this.#logger = logger;
  }

  /** Opens the event stream ahead of the first container. Fails with `unavailable`. */
  open(): Promise<void> {
    if (this.#stream !== undefined && !this.#stream.destroyed) return Promise.resolve();
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  /** Watches a container before its start. The stream must be open. */
  expect(container: string): Promise<ExitResult> {
    return this.#watch(container).promise;
  }

  /**
   * Resolves when the container has ended; immediately when it has already ended or does not exist. Fails
   * with `unavailable` when the daemon does not answer now.
   */
  async wait(container: string): Promise<ExitResult> {
    const known = this.#watched.get(container);
    if (known !== undefined) return await known.promise;
    const watched = this.#watch(container);
    try {
      await this.open();
      await this.#inspect(container);
    } catch (error) {
      if (this.#watched.get(container) === watched) this.#watched.delete(container);
      // Other callers share this promise; each of them must retry itself.
      watched.reject(error as Error);
    }
    return await watched.promise;
  }

  /**
   * Marks the container as ended by this server, so that its end is not reported as stopped through docker.
   */
  isEnding(container: string): void {
    const watched = this.#watched.get(container);
    if (watched !== undefined) watched.isEndedByUs = true;
  }

  /** Stops watching a container that is removed. Pending waits resolve with an unknown exit. */
  forget(container: string): void {
    const watched = this.#watched.get(container);
    this.#watched.delete(container);
    watched?.resolve(unknownExit());
  }

  close(): void {
    this.#closing.abort();
    this.#stream?.destroy();
    this.#watched.clear();
  }

  #watch(container: string): Watched {
    let resolve!: (exit: ExitResult) => void;
    let reject!: (error: Error) => void;
    const promise = new Promise<ExitResult>((settle, fail) => {
      resolve = settle;
      reject = fail;
    });
    promise.catch(() => undefined);
    let exceedsMemory!: () => void;
    const outOfMemory = new Promise<void>(settle => {
      exceedsMemory = settle;
    });
    const marks = { isEndedByUs: false, isStopped: false };
    const watched: Watched = { promise, resolve, reject, outOfMemory, exceedsMemory, ...marks };
    this.#watched.set(container, watched);
    return watched;
  }

  async #connect(): Promise<void> {
    const filters = JSON.stringify({
      type: ['container'],
      event: ['kill', 'oom', 'die', 'destroy'],
      label: [`${LABEL_INSTALLATION}=${this.#installation}`],
    });
    const stream = (await this.#engine.request('tell its events', docker => docker.getEvents({ filters }))) as Readable;
    if (this.#closing.signal.aborted) {
      stream.destroy();
      return;
    }
    // An open event stream must not keep the process alive.
    (stream as Readable & { socket?: { unref(): void } }).socket?.unref();
    this.#stream = stream;
    let rest = '';
    stream.setEncoding('utf8');
    stream.on('data', (chunk: string) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) this.#hear(line);
    });
    stream.on('error', () => undefined);
    stream.once('close', () => {
      this.#stream = undefined;
      void this.#reconnect();
    });
  }

  async #reconnect(): Promise<void> {
    const { signal } = this.#closing;
    for (let tries = 1; this.#watched.size > 0; tries++) {
      await pause(backoffMs(RETRY, tries), signal);
      if (signal.aborted) return;
      try {
        await this.open();
        await Promise.all([...this.#watched.keys()].map(container => this.#inspect(container)));
        return;
      } catch (error) {
        if (!signal.aborted) this.#logger.debug({ err: error }, 'docker daemon is not reachable; retrying');
      }
    }
  }

  #hear(line: string): void {
    let event: ContainerEvent;
    try {
      event = JSON.parse(line) as ContainerEvent;
    } catch {
      return;
    }
    const { ID: container = '', Attributes: attributes = {} } = event.Actor ?? {};
    const watched = this.#watched.get(container);
    if (watched === undefined) return;
    if (event.Action === 'kill') {
      watched.isStopped = true;
      return;
    }
    if (event.Action === 'oom') {
      watched.exceedsMemory();
      return;
    }
    void this.#inspect(container, Number(attributes.exitCode ?? Number.NaN), OUT_OF_MEMORY_MS).catch(() => {
      // The daemon is going down. The reconnect inspects the container again.
      this.#stream?.destroy();
    });
  }

  /**
   * Resolves the wait when the container has ended. `exitCode`, from the event, is used when the container
   * has already been removed. `outOfMemoryMs` bounds the wait for the cause of an unexplained kill.
   */
  async #inspect(container: string, exitCode = Number.NaN, outOfMemoryMs = 0): Promise<void> {
    const found = await inspectExit(this.#engine, container);
    if (found === 'running' || found === 'created') return;
    const watched = this.#watched.get(container);
    if (watched === undefined) return;
    const state = found === 'gone' ? found : await withMemory(found, watched, outOfMemoryMs);
    if (this.#watched.get(container) !== watched) return;
    this.#watched.delete(container);
    const isTold = state === 'gone' && Number.isInteger(exitCode);
    const exit = isTold
      ? toExit({ Running: false, OOMKilled: false, ExitCode: exitCode, FinishedAt: '' })
      : state === 'gone'
        ? unknownExit()
        : state;
    const cause = state === 'gone' ? REMOVED : watched.isStopped ? STOPPED : null;
    watched.resolve(cause === null || watched.isEndedByUs ? exit : { ...exit, cause });
  }
}

/** Adds to an unexplained kill that the container exceeded its memory, if Docker reports that in time. */
async function withMemory(exit: ExitResult, watched: Watched, timeoutMs: number): Promise<ExitResult> {
  const isUnexplained = exit.signal === 'SIGKILL' && !exit.oomKilled && !watched.isStopped && !watched.isEndedByUs;
  return isUnexplained && (await endsWithin(watched.outOfMemory, timeoutMs)) ? { ...exit, oomKilled: true } : exit;
}

/**
 * Returns how a container ended, or its state when it has not ended: a paused one is `running`. Fails with
 * `unavailable`.
 */
export async function inspectExit(
  engine: Engine,
  container: string,
): Promise<ExitResult | 'running' | 'created' | 'gone'> {
  const state = await inspectState(engine, container);
  return state === 'paused' ? 'running' : state;
}

/** Returns what `inspectExit` does, and `paused` for a paused container. */
export async function inspectState(
  engine: Engine,
  container: string,
): Promise<ExitResult | 'running' | 'paused' | 'created' | 'gone'> {
  try {
    const { State } = await engine.request('inspect a container', docker => docker.getContainer(container).inspect());
    if (State.Running) return State.Paused ? 'paused' : 'running';
    return State.Status === 'created' ? 'created' : toExit(State);
  } catch (error) {
    if (statusOf(error) === 404) return 'gone';
    throw error;
  }
}

export function unknownExit(): ExitResult {
  return { code: null, signal: null, oomKilled: false, atMs: Date.now() };
}

/** Fields of the Engine's container state that describe an end. */
export interface ContainerState {
  readonly Status?: string;
  readonly Running: boolean;
  readonly OOMKilled: boolean;
  readonly ExitCode: number;
  readonly FinishedAt: string;
}

const SIGNALS: Readonly<Record<number, string>> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  5: 'SIGTRAP',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  10: 'SIGUSR1',
  11: 'SIGSEGV',
  12: 'SIGUSR2',
  13: 'SIGPIPE',
  14: 'SIGALRM',
  15: 'SIGTERM',
  24: 'SIGXCPU',
  25: 'SIGXFSZ',
  31: 'SIGSYS',
};

/** Converts the Engine's state to an exit. The container's init reports a signal as 128 + signal number. */
export function toExit(state: ContainerState): ExitResult {
  const atMs = Date.parse(state.FinishedAt);
  const signal = state.ExitCode > 128 ? (SIGNALS[state.ExitCode - 128] ?? null) : null;
  return {
    // A container that never started has no exit code.
    code: signal !== null || state.Status === 'created' ? null : state.ExitCode,
    signal,
    oomKilled: state.OOMKilled && signal === 'SIGKILL',
    atMs: Number.isFinite(atMs) && atMs > 0 ? atMs : Date.now(),
  };
}

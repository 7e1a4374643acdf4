import type { IncomingMessage } from 'node:http';
import { messageOf, unavailable } from '../../core/error.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { ApiRefusal, type KubernetesApi, statusOf } from './cluster.ts';

const RETRY = { firstMs: 100, longestMs: 10_000 };
const PAGE = 500;
/**
 * Maximum duration of a watch. The next one continues from there, so that no connection stays open for ever.
 */
const WATCH_SECONDS = 290;
/** Time without data after which a connection counts as lost. Bookmarks arrive every minute. */
const SILENT_MS = 150_000;
const SHORT_MS = 1_000;
const NEWLINE = 0x0a;
const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** Metadata of every object of the API, in its own format. */
export interface KubernetesObject {
  readonly metadata?: {
    readonly name?: string;
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    managedFields?: unknown;
  };
}

export interface WatchedOptions {
  readonly cluster: Pick<KubernetesApi, 'request' | 'stream' | 'server'>;
  /** Path such as `/api/v1/namespaces/<namespace>/pods`. */
  readonly path: string;
  readonly labelSelector: string;
  /** Noun for messages: `pods`. */
  readonly noun: string;
  readonly logger: Logger;
}

/** Called for each change. `now` undefined: the object was removed, and `before` is its last known state. */
export type WatchListener<T> = (name: string, now: T | undefined, before: T | undefined) => void;

/**
 * Keeps all objects of a kind and selector up to date through one list and one watch. A watch that ends
 * continues from the last version seen. A new list follows only when that version is too old (410). While the
 * API server is unreachable, all objects stay and `problem` says so.
 */
export class Watched<T extends KubernetesObject> {
  readonly #options: WatchedOptions;
  readonly #objects = new Map<string, T>();
  readonly #listeners = new Set<WatchListener<T>>();
  readonly #closing = new AbortController();
  #running: Promise<void> | undefined;
  #listed: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;
  #version = '';
  #isListed = false;
  #problem: string | null = 'nothing has been asked yet';

  constructor(options: WatchedOptions) {
    this.#options = options;
  }

  /** Returns the reason why the objects may be outdated, or null. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Returns true once a list was complete. From then on an unknown object does not exist. */
  get isListed(): boolean {
    return this.#isListed;
  }

  /**
   * Starts on the first call and resolves when all objects are known. Fails with `unavailable` after
   * `timeoutMs`.
   */
  async open(timeoutMs = 10_000): Promise<void> {
    if (this.#closing.signal.aborted) throw unavailable('the kubernetes driver is closed');
    if (this.#listed === undefined) {
      let resolve!: () => void;
      const promise = new Promise<void>(settle => {
        resolve = settle;
      });
      this.#listed = { promise, resolve };
      this.#running = this.#run();
    }
    const { promise } = this.#listed;
    const timer = new AbortController();
    const isLate = pause(timeoutMs, timer.signal).then(() => true);
    const late = await Promise.race([promise.then(() => false), isLate]);
    timer.abort();
    if (late) throw unavailable(this.#problem ?? `the ${this.#options.noun} are not known yet`);
  }

  get(name: string): T | undefined {
    return this.#objects.get(name);
  }

  all(): IterableIterator<T> {
    return this.#objects.values();
  }

  /** Stores an object from an answer of the API server, ahead of the watch. */
  learn(object: T): void {
    const name = object.metadata?.name ?? '';
    // The watch has passed this version and does not have the object, so it has been deleted.
    if (!this.#objects.has(name) && versionOf(object) <= Number(this.#version)) return;
    this.#set(name, object);
  }

  /**
   * Registers a listener for every change and returns a function that unsubscribes it. Listeners must not
   * throw.
   */
  subscribe(listener: WatchListener<T>): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
    this.#listeners.clear();
    this.#objects.clear();
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    const { noun, logger } = this.#options;
    for (let failures = 0; !signal.aborted; ) {
      try {
        if (this.#version === '') await this.#list();
        const sinceMs = performance.now();
        await this.#watch();
        failures = 0;
        // Pause, so that a watch that always ends at once is not repeated in a tight loop.
        if (performance.now() - sinceMs < SHORT_MS) await pause(RETRY.firstMs, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (statusOf(error) === 410) {
          this.#version = '';
          continue;
        }
        failures += 1;
        if (failures === 1) logger.debug({ err: error }, `watch of ${noun} ended`);
        if (failures === 3) logger.warn({ err: error }, `cannot watch ${noun} of cluster; retrying`);
        this.#problem = messageOf(error);
        await pause(backoffMs(RETRY, failures) * (0.5 + Math.random() / 2), signal);
      }
    }
  }

  async #list(): Promise<void> {
    const { cluster, path, labelSelector, noun } = this.#options;
    const seen = new Set<string>();
    const { signal } = this.#closing;
    for (let token = ''; ; ) {
      const query = { labelSelector, limit: PAGE, ...(token === '' ? {} : { continue: token }) };
      const page = await cluster.request<{ metadata: { resourceVersion: string; continue?: string }; items: T[] }>(
        `list ${noun}`,
        { path, query, signal, timeoutMs: 30_000 },
      );
      for (const item of page.items) {
        const name = item.metadata?.name ?? '';
        seen.add(name);
        this.#set(name, item);
      }
      token = page.metadata.continue ?? '';
      if (token !== '') continue;
      const listed = Number(page.metadata.resourceVersion);
      for (const [name, object] of [...this.#objects]) {
        // An object created after the list is not in it. The watch, which starts at this list, would report
        // its end.
        if (!seen.has(name) && !(versionOf(object) > listed)) this.#drop(name);
      }
      this.#version = page.metadata.resourceVersion;
      this.#problem = null;
      this.#isListed = true;
      this.#listed?.resolve();
      return;
    }
  }

  async #watch(): Promise<void> {
    const { cluster, path, labelSelector, noun } = this.#options;
    const query = {
      watch: true,
      labelSelector,
      allowWatchBookmarks: true,
      resourceVersion: this.#version,
      timeoutSeconds: WATCH_SECONDS,
    };
    const message = await cluster.stream(`watch ${noun}`, { path, query }, this.#closing.signal);
    // An open watch must not keep the process alive.
    message.socket.unref();
    message.socket.setTimeout(SILENT_MS, () => message.destroy());
    this.#problem = null;
    try {
      for await (const line of linesOf(message)) this.#hear(JSON.parse(line) as WatchEvent<T>);
    } finally {
      message.destroy();
    }
  }

  #hear({ type, object }: WatchEvent<T>): void {
    if (type === 'ERROR') throw watchError(object, this.#options.noun);
    const name = object.metadata?.name ?? '';
    if (type === 'ADDED' || type === 'MODIFIED') this.#set(name, object);
    else if (type === 'DELETED') this.#drop(name, object);
    this.#version = object.metadata?.resourceVersion ?? this.#version;
  }

  #set(name: string, now: T): void {
    // `managedFields` takes more than half of an object's memory and is never read.
    delete now.metadata?.managedFields;
    let before = this.#objects.get(name);
    if (before !== undefined && before.metadata?.uid !== now.metadata?.uid) {
      // The object was removed and another one was created under its name between two reports.
      this.#drop(name);
      before = undefined;
    }
    // An event may arrive after the answer to a later request.
    if (before !== undefined && versionOf(before) >= versionOf(now)) return;
    this.#objects.set(name, now);
    for (const listener of this.#listeners) listener(name, now, before);
  }

  #drop(name: string, last?: T): void {
    const before = last ?? this.#objects.get(name);
    if (this.#objects.delete(name)) for (const listener of this.#listeners) listener(name, undefined, before);
  }
}

interface WatchEvent<T> {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: T;
}

/**
 * Returns the version as a number that grows; guaranteed since Kubernetes 1.35, and true for every earlier
 * API server.
 */
function versionOf(object: KubernetesObject): number {
  return Number(object.metadata?.resourceVersion);
}

/** Returns the error of a watch. Code `410`: the version is too old, and a new list follows. */
function watchError(status: unknown, noun: string): Error {
  const { code = 0, reason = '', message = '' } = status as { code?: number; reason?: string; message?: string };
  const cause = new ApiRefusal(code, reason, message);
  return unavailable(`the API server ended the watch of ${noun}: ${message}`, { cause });
}

async function* linesOf(message: IncomingMessage): AsyncIterable<string> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      parts.push(chunk.subarray(from, at));
      yield (parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)).toString();
      parts = [];
      bytes = 0;
      from = at + 1;
    }
    if (from === chunk.length) continue;
    parts.push(chunk.subarray(from));
    bytes += chunk.length - from;
    if (bytes > MAX_LINE_BYTES) throw unavailable('the API server sent an object that is too large');
  }
}

import { randomBytes } from 'node:crypto';
import { notFound, ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { DirectoryWatch, WatchEvent } from '../../sandbox/files.ts';

interface Watcher {
  readonly directory: DirectoryWatch;
  /** Ends the watch. */
  readonly over: AbortController;
  polledAtMs: number;
}

/**
 * Watched directories whose events clients fetch. They end with `remove`, with their sandbox, or with the
 * service. A sandbox has a limit of open watches; at this limit, a new watcher replaces one that no client
 * has polled for `idleMs`.
 */
export class PolledWatchers {
  /** Watchers by sandbox and id, least recently polled first. */
  readonly #watchers = new Map<string, Map<string, Watcher>>();
  readonly #idleMs: number;

  constructor(idleMs: number = LIMITS.e2bWatcherIdleMs) {
    this.#idleMs = idleMs;
  }

  /** Adds the watch that `open` starts, and returns its id. `signal` bounds the start only. */
  async create(
    sandboxId: string,
    open: (signal: AbortSignal) => Promise<DirectoryWatch>,
    signal: AbortSignal,
  ): Promise<string> {
    const over = new AbortController();
    const abort = () => over.abort(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    try {
      const directory = await this.#open(sandboxId, () => open(over.signal));
      return this.#add(sandboxId, { directory, over, polledAtMs: performance.now() });
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  async #open(sandboxId: string, open: () => Promise<DirectoryWatch>): Promise<DirectoryWatch> {
    for (;;) {
      try {
        return await open();
      } catch (error) {
        const isFull = error instanceof ServiceError && error.code === 'resource_exhausted';
        if (!isFull || !this.#removeIdle(sandboxId)) throw error;
      }
    }
  }

  #removeIdle(sandboxId: string): boolean {
    const [oldest] = this.#watchers.get(sandboxId) ?? [];
    if (oldest === undefined || performance.now() - oldest[1].polledAtMs < this.#idleMs) return false;
    this.remove(sandboxId, oldest[0]);
    return true;
  }

  #add(sandboxId: string, watcher: Watcher): string {
    const id = `w${randomBytes(10).toString('hex')}`;
    const ofSandbox = this.#watchers.get(sandboxId) ?? new Map<string, Watcher>();
    this.#watchers.set(sandboxId, ofSandbox.set(id, watcher));
    void watcher.directory.ended.then(reason => {
      // A watch that failed while its sandbox runs stays, so that its client reads the reason.
      const hasSandboxEnded = reason instanceof ServiceError && reason.code === 'unavailable';
      if (hasSandboxEnded && ofSandbox.has(id)) this.remove(sandboxId, id);
    });
    return id;
  }

  /**
   * Returns the events since the last call, with those of all changes before this call. Fails with
   * `not_found`.
   */
  async drainEvents(sandboxId: string, id: string): Promise<readonly WatchEvent[]> {
    const ofSandbox = this.#watchers.get(sandboxId);
    const watcher = ofSandbox?.get(id);
    if (ofSandbox === undefined || watcher === undefined) throw notFound(`watcher not found: ${id}`);
    watcher.polledAtMs = performance.now();
    ofSandbox.delete(id);
    ofSandbox.set(id, watcher);
    try {
      // `take` throws the reason of a failed watch once no event is left.
      await watcher.directory.flush().catch(() => undefined);
      return watcher.directory.drain();
    } catch (error) {
      if (ofSandbox.has(id)) this.remove(sandboxId, id);
      throw error;
    }
  }

  /** Fails with `not_found`. */
  remove(sandboxId: string, id: string): void {
    const ofSandbox = this.#watchers.get(sandboxId);
    const watcher = ofSandbox?.get(id);
    if (ofSandbox === undefined || watcher === undefined) throw notFound(`watcher not found: ${id}`);
    ofSandbox.delete(id);
    if (ofSandbox.size === 0) this.#watchers.delete(sandboxId);
    end(watcher);
  }

  /** Ends all watchers. */
  close(): void {
    for (const ofSandbox of this.#watchers.values()) for (const watcher of ofSandbox.values()) end(watcher);
    this.#watchers.clear();
  }
}

function end({ directory, over }: Watcher): void {
  directory.close();
  over.abort();
}

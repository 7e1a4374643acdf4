import { randomBytes } from 'node:crypto';
import { notFound, ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { DirectoryWatch, WatchEvent } from '../../sandbox/files.ts';

interface Watcher {
  readonly directory: DirectoryWatch;
  /** Ends the watch. */
  readonly over: AbortController;
}

/**
 * Watched directories whose events clients fetch. They end with `remove`, with their sandbox, or with the
 * service. Of more than `LIMITS.e2bWatchers` in one sandbox, the one that was polled the longest ago ends.
 */
export class PolledWatchers {
  /** Watchers by sandbox and id, least recently polled first. */
  readonly #watchers = new Map<string, Map<string, Watcher>>();

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
      const directory = await open(over.signal);
      const id = `w${randomBytes(10).toString('hex')}`;
      const ofSandbox = this.#watchers.get(sandboxId) ?? new Map<string, Watcher>();
      this.#watchers.set(sandboxId, ofSandbox.set(id, { directory, over }));
      void directory.ended.then(reason => {
        // A watch that failed while its sandbox runs stays, so that its client reads the reason.
        const hasSandboxEnded = reason instanceof ServiceError && reason.code === 'unavailable';
        if (hasSandboxEnded && ofSandbox.has(id)) this.remove(sandboxId, id);
      });
      const [oldest] = ofSandbox.keys();
      if (ofSandbox.size > LIMITS.e2bWatchers) this.remove(sandboxId, oldest as string);
      return id;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /**
   * Returns the events since the last call, with those of all changes before this call. Fails with
   * `not_found`.
   */
  async take(sandboxId: string, id: string): Promise<readonly WatchEvent[]> {
    const ofSandbox = this.#watchers.get(sandboxId);
    const watcher = ofSandbox?.get(id);
    if (ofSandbox === undefined || watcher === undefined) throw notFound(`watcher not found: ${id}`);
    ofSandbox.delete(id);
    ofSandbox.set(id, watcher);
    try {
      await watcher.directory.flush();
      return watcher.directory.take();
    } catch (error) {
      const rest = watcher.directory.take();
      if (rest.length > 0) return rest;
      this.remove(sandboxId, id);
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

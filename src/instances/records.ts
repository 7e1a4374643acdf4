/** Longest delay of a write in milliseconds, so that concurrent writes are batched. */
const LATEST_MS = 5;

interface Waiting {
  readonly write: () => Promise<void>;
  begun: Promise<void> | undefined;
}

/**
 * Writes that no caller waits for. The writes start together after `LATEST_MS`, or when `settle` requests one
 * of them. A reader that calls `settle` first sees the record as if the write had been awaited.
 */
export class Records {
  readonly #waiting = new Map<string, Waiting>();
  #timer: NodeJS.Timeout | undefined;

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  isWaiting(id: string): boolean {
    return this.#waiting.has(id);
  }

  /** Schedules `write`, which runs once and must not reject. */
  later(id: string, write: () => Promise<void>): void {
    this.#waiting.set(id, { write, begun: undefined });
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const waiting of this.#waiting.keys()) void this.settle(waiting);
    }, LATEST_MS);
  }

  /** Flushes the pending write of an instance. Resolves when the write has been tried. */
  async settle(id: string): Promise<void> {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    waiting.begun ??= waiting.write().finally(() => this.#waiting.delete(id));
    await waiting.begun;
  }

  /** Flushes all pending writes. */
  async settleAll(): Promise<void> {
    await Promise.all([...this.#waiting.keys()].map(id => this.settle(id)));
  }
}

/** How long a write may be put off, so that those of many go together. */
const LATEST_MS = 5;

interface Waiting {
  readonly write: () => Promise<void>;
  begun: Promise<void> | undefined;
}

/**
 * Writes that nobody was told to wait for. They begin a moment later, all in one turn, or as soon as somebody asks for one of them: who looks
 * at a row after `settle` sees it as if the write had been waited for.
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

  /** `write`, which does not reject, is run once. */
  later(id: string, write: () => Promise<void>): void {
    this.#waiting.set(id, { write, begun: undefined });
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const waiting of this.#waiting.keys()) void this.settle(waiting);
    }, LATEST_MS);
  }

  /** Returns when what was put off for this instance has been tried. */
  async settle(id: string): Promise<void> {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    waiting.begun ??= waiting.write().finally(() => this.#waiting.delete(id));
    await waiting.begun;
  }

  /** The same of all. */
  async settleAll(): Promise<void> {
    await Promise.all([...this.#waiting.keys()].map(id => this.settle(id)));
  }
}

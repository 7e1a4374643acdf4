/** Tells those who look at a job that something about it has changed. */
export class JobChanges {
  readonly #watchers = new Map<number, Set<JobWatch>>();

  watch(sequence: number, signal: AbortSignal): JobWatch {
    const watchers = this.#watchers.get(sequence) ?? new Set();
    this.#watchers.set(sequence, watchers);
    const watch: JobWatch = new JobWatch(signal, () => {
      watchers.delete(watch);
      if (watchers.size === 0) this.#watchers.delete(sequence);
    });
    watchers.add(watch);
    return watch;
  }

  emit(sequence: number): void {
    for (const watch of this.#watchers.get(sequence) ?? []) watch.wake();
  }
}

/** Changes before `next` count. */
class JobWatch {
  readonly #signal: AbortSignal;
  readonly #forget: () => void;
  readonly #onAbort = () => this.wake();
  #hasChanged = false;
  #waiting: (() => void) | undefined;

  constructor(signal: AbortSignal, forget: () => void) {
    this.#signal = signal;
    this.#forget = forget;
    signal.addEventListener('abort', this.#onAbort);
  }

  wake(): void {
    this.#hasChanged = true;
    this.#waiting?.();
  }

  /** At the next change, or when the signal aborts. */
  async next(): Promise<void> {
    if (!this.#hasChanged && !this.#signal.aborted) {
      await new Promise<void>(resolve => {
        this.#waiting = resolve;
      });
    }
    this.#hasChanged = false;
  }

  close(): void {
    this.#signal.removeEventListener('abort', this.#onAbort);
    this.#forget();
  }
}

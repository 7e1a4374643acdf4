import type { Instance } from '../core/instance.ts';

/** Long operation that changes an instance as a whole. */
export interface Operation {
  readonly kind: 'create' | 'restart' | 'delete';
  readonly abort: AbortController;
  /** Resulting instance; undefined after a delete. */
  readonly done: Promise<Instance | undefined>;
}

/** Running operations of this process, by instance. The reconciler skips these instances. */
export class Operations {
  readonly #running = new Map<string, Operation>();
  readonly #hold: (id: string) => () => void;

  /**
   * Creates the table. `hold` locks an instance against other parts until the returned function is called.
   */
  constructor(hold: (id: string) => () => void) {
    this.#hold = hold;
  }

  /** Returns the number of running creates and restarts. */
  get starts(): number {
    let starts = 0;
    for (const { kind } of this.#running.values()) if (kind !== 'delete') starts++;
    return starts;
  }

  of(id: string): Operation | undefined {
    return this.#running.get(id);
  }

  /** Runs `work`, and replaces an operation on the same instance that is still running. */
  run<T extends Instance | undefined>(
    id: string,
    kind: Operation['kind'],
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const abort = new AbortController();
    // A microtask later, so that `work` finds this operation in the table.
    const done = Promise.resolve().then(() => work(abort.signal));
    const operation: Operation = { kind, abort, done };
    this.#running.set(id, operation);
    const release = this.#hold(id);
    const end = () => {
      release();
      if (this.#running.get(id) === operation) this.#running.delete(id);
    };
    done.then(end, end);
    return done;
  }

  /** Aborts creates and restarts; deletes continue. */
  abortStarts(reason: Error): void {
    for (const { kind, abort } of this.#running.values()) if (kind !== 'delete') abort.abort(reason);
  }

  /** Resolves when all operations that run now have ended, successfully or not. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
  }
}

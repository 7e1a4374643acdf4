import type { Instance } from '../core/instance.ts';

/** Something that changes an instance as a whole and takes its time. */
export interface Operation {
  readonly kind: 'create' | 'restart' | 'delete';
  readonly abort: AbortController;
  /** The instance that came of it, undefined after a delete. */
  readonly done: Promise<Instance | undefined>;
}

/** The operations that run in this process, by instance: whoever else meets a half-made instance leaves it alone. */
export class Operations {
  readonly #running = new Map<string, Operation>();
  readonly #hold: (id: string) => () => void;

  /** `hold` keeps everybody else from an instance until what it returns is called. */
  constructor(hold: (id: string) => () => void) {
    this.#hold = hold;
  }

  /** Creates and restarts that run now. */
  get starts(): number {
    let starts = 0;
    for (const { kind } of this.#running.values()) if (kind !== 'delete') starts++;
    return starts;
  }

  of(id: string): Operation | undefined {
    return this.#running.get(id);
  }

  /** Runs `work`; takes the place of an operation on the same instance that is still running. */
  run<T extends Instance | undefined>(
    id: string,
    kind: Operation['kind'],
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const abort = new AbortController();
    // Started a microtask later: `work` must find this operation in its place.
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

  /** Aborts what starts instances; deletes go on. */
  abortStarts(reason: Error): void {
    for (const { kind, abort } of this.#running.values()) if (kind !== 'delete') abort.abort(reason);
  }

  /** Resolves when everything that runs now has ended, however. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
  }
}

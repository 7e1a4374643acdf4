import type { Instance } from '../core/instance.ts';
import type { AgentTable, Operation } from './agent-table.ts';

/** Running operations of this process, by instance. The reconciler skips these instances. */
export class Operations {
  readonly #table: AgentTable;
  readonly #lock: (id: string) => () => void;
  #starts = 0;

  /** `lock` locks an instance against other parts until the returned function is called. */
  constructor(table: AgentTable, lock: (id: string) => () => void) {
    this.#table = table;
    this.#lock = lock;
  }

  /** Returns the number of running creates and restarts. */
  get starts(): number {
    return this.#starts;
  }

  of(id: string): Operation | undefined {
    return this.#table.get(id)?.operation;
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
    this.#replace(id, operation);
    const release = this.#lock(id);
    const end = () => {
      release();
      if (this.of(id) === operation) this.#replace(id, undefined);
    };
    done.then(end, end);
    return done;
  }

  /** Aborts creates and restarts; the others continue. */
  abortStarts(reason: Error): void {
    for (const operation of this.#running()) if (isStart(operation)) operation.abort.abort(reason);
  }

  /** Resolves when all operations that run now have ended, successfully or not. */
  async allEnded(): Promise<void> {
    await Promise.allSettled(this.#running().map(({ done }) => done));
  }

  #replace(id: string, operation: Operation | undefined): void {
    for (const [each, change] of [
      [this.of(id), -1],
      [operation, 1],
    ] as const)
      if (each !== undefined && isStart(each)) this.#starts += change;
    this.#table.set(id, { operation });
  }

  #running(): readonly Operation[] {
    return this.#table.entries().flatMap(([, { operation }]) => operation ?? []);
  }
}

/** Returns true for an operation that starts a sandbox. */
function isStart({ kind }: Operation): boolean {
  return kind === 'create' || kind === 'restart';
}

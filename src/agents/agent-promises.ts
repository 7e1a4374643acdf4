import type { ServiceError } from '../core/error.ts';
import type { Ledger, Size } from '../instances/ledger.ts';
import type { InstanceRef, StoredInstance } from '../storage/instances.ts';

/** An agent's sandbox and what it may use. */
type Sized = Pick<StoredInstance, 'id' | 'epoch' | 'cpuMillis' | 'memoryMb'>;

/** What the machine has promised to agents: each counts once, for the newest of its sandboxes. */
export class AgentPromises {
  readonly #ledger: Ledger;
  readonly #maxProcesses: number;
  readonly #promised = new Map<string, Sized>();

  constructor(ledger: Ledger, maxProcesses: number) {
    this.#ledger = ledger;
    this.#maxProcesses = maxProcesses;
  }

  /** Why this sandbox may not start now; undefined: it may. Of an agent that has a promise, the room is its own. */
  refusal(sandbox: Sized): ServiceError | undefined {
    return this.#promised.has(sandbox.id) ? undefined : this.#ledger.refusal(this.#sizeOf(sandbox));
  }

  take({ id, epoch, cpuMillis, memoryMb }: Sized): void {
    const isCounted = this.#promised.has(id);
    const promised = { id, epoch, cpuMillis, memoryMb };
    this.#promised.set(id, promised);
    if (!isCounted) this.#ledger.take('agent', this.#sizeOf(promised));
  }

  /**
   * The sandbox before this one goes, and its room is for this one. Were it given back in between, whoever waits for room would have it at once; and
   * a late word of the end of the one before gives nothing back any more.
   */
  passOn(next: Sized): void {
    if (this.#promised.has(next.id)) this.take(next);
  }

  /** Nothing is left of this sandbox, nor of an earlier one; a later one of the same agent keeps what it has. */
  give({ id, epoch }: InstanceRef): void {
    const promised = this.#promised.get(id);
    if (promised === undefined || promised.epoch > epoch) return;
    this.#promised.delete(id);
    this.#ledger.give('agent', this.#sizeOf(promised));
  }

  #sizeOf({ cpuMillis, memoryMb }: Sized): Size {
    return { cpuMillis, memoryMb, processes: this.#maxProcesses };
  }
}

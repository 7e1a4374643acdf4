import type { ServiceError } from '../core/error.ts';
import type { Ledger, Size } from '../instances/ledger.ts';
import type { InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import type { AgentTable } from './agent-table.ts';
import type { AgentsOptions } from './options.ts';
import { tooManyAwake } from './refusals.ts';

/** Sandbox of an agent, with its size. */
type Sized = Pick<StoredInstance, 'id' | 'epoch' | 'cpuMillis' | 'memoryMb'>;

type ReservationOptions = Pick<AgentsOptions, 'ledger' | 'maxProcesses' | 'maxAwake'>;

/** Reservations of agents in the ledger. Each agent counts once, for its newest sandbox. */
export class AgentReservations {
  readonly #ledger: Ledger;
  readonly #maxProcesses: number;
  readonly #maxAwake: number;
  readonly #table: AgentTable;
  /** Number of agents that have a reservation. */
  #awake = 0;

  constructor(table: AgentTable, { ledger, maxProcesses, maxAwake = 0 }: ReservationOptions) {
    this.#table = table;
    this.#ledger = ledger;
    this.#maxProcesses = maxProcesses;
    this.#maxAwake = maxAwake;
  }

  /**
   * Returns why the sandbox may not start now, or undefined if it may. An agent with a reservation is refused
   * only if the sandbox is larger.
   */
  refusal(sandbox: Sized): ServiceError | undefined {
    const held = this.#table.get(sandbox.id)?.reservation;
    if (held !== undefined) {
      const isLarger = sandbox.cpuMillis > held.cpuMillis || sandbox.memoryMb > held.memoryMb;
      return isLarger ? this.#ledger.refusal(this.#sizeOf(sandbox), this.#sizeOf(held)) : undefined;
    }
    if (this.#maxAwake > 0 && this.#awake >= this.#maxAwake) return tooManyAwake(this.#maxAwake);
    return this.#ledger.refusal(this.#sizeOf(sandbox));
  }

  reserve({ id, epoch, cpuMillis, memoryMb }: Sized): void {
    const held = this.#table.get(id)?.reservation;
    const reservation = { id, epoch, cpuMillis, memoryMb };
    this.#table.set(id, { reservation });
    if (held !== undefined) {
      this.#ledger.resize('agent', this.#sizeOf(held), this.#sizeOf(reservation));
      return;
    }
    this.#awake += 1;
    this.#ledger.reserve('agent', this.#sizeOf(reservation));
  }

  /**
   * Transfers the reservation of an agent to its next sandbox. A release in between would give the capacity
   * to a waiting request. A late exit event of the previous sandbox then releases nothing.
   */
  transfer(next: Sized): void {
    if (this.#table.get(next.id)?.reservation !== undefined) this.reserve(next);
  }

  /**
   * Releases the reservation after a sandbox and all earlier ones are removed. A later sandbox of the agent
   * keeps it.
   */
  release({ id, epoch }: InstanceRef): void {
    const reservation = this.#table.get(id)?.reservation;
    if (reservation === undefined || reservation.epoch > epoch) return;
    this.#table.set(id, { reservation: undefined });
    this.#awake -= 1;
    this.#ledger.release('agent', this.#sizeOf(reservation));
  }

  #sizeOf({ cpuMillis, memoryMb }: Sized): Size {
    return { cpuMillis, memoryMb, processes: this.#maxProcesses };
  }
}

import type { Reservation, ReservationRequest } from '../core/reservation.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { listReservations } from '../storage/reservations.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { FunctionRegistry } from './functions.ts';
import { dropReservations, writeReservation } from './reservation-writes.ts';

export interface ReservationRegistryOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly changes: ChangeFeed;
  readonly functions: FunctionRegistry;
  /** The clusters that may be named. */
  readonly clusters: readonly string[];
}

/**
 * Reserved instances: what a function version keeps warm, by label. `funcName` of a request is the plain name here. Fails with
 * `not_found` (4115) for an unknown version, and with `failed_precondition` (4104) for what contradicts what is stored.
 */
export class ReservationRegistry {
  readonly #options: ReservationRegistryOptions;

  constructor(options: ReservationRegistryOptions) {
    this.#options = options;
  }

  /** Creates the reservation of a label, or puts it in place of the old one. */
  put(tenant: string, request: ReservationRequest): Promise<Reservation> {
    return this.#write(tenant, request, 'put');
  }

  /** Changes the reservation of a label that was created before. */
  update(tenant: string, request: ReservationRequest): Promise<Reservation> {
    return this.#write(tenant, request, 'update');
  }

  /** Every label's reservation of one version. */
  async list(tenant: string, name: string, version: string): Promise<Reservation[]> {
    const { database, functions } = this.#options;
    const found = await listReservations(database, { tenant, name, version });
    if (found.length === 0) await functions.get(tenant, name, version);
    return found;
  }

  /** Deletes the reservation of a label; with `''` those of all labels. */
  async delete(
    tenant: string,
    { funcName: name, version, instanceLabel }: Omit<ReservationRequest, 'clusters'>,
  ): Promise<void> {
    const { writes, changes } = this.#options;
    await writes.write(dropReservations, { tenant, name, version }, instanceLabel === '' ? null : instanceLabel);
    changes.emit({ kind: 'reserved', tenant, name, version, mayKeepInstances: true });
  }

  async #write(tenant: string, request: ReservationRequest, how: 'put' | 'update'): Promise<Reservation> {
    const { writes, changes, clusters } = this.#options;
    const written = await writes.write(writeReservation, tenant, request, how, clusters);
    changes.emit({
      kind: 'reserved',
      tenant,
      name: request.funcName,
      version: request.version,
      mayKeepInstances: true,
    });
    return written;
  }
}

import type { Reservation, ReservationRequest } from '../core/reservation.ts';
import type { Database } from '../storage/database.ts';
import { listReservations } from '../storage/queries/reservations.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { FunctionRegistry } from './functions.ts';
import { dropReservations, writeReservation } from './reservation-writes.ts';

export interface ReservationRegistryOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly changes: ChangeFeed;
  readonly functions: FunctionRegistry;
  /** Clusters that may be named. */
  readonly clusters: readonly string[];
}

/**
 * Reserved instances: the instances that a function version keeps warm, by label. `funcName` of a request is
 * the plain name. Fails with `not_found` (4115) for an unknown version. Fails with `failed_precondition`
 * (4104) if the request contradicts stored records.
 */
export class ReservationRegistry {
  readonly #options: ReservationRegistryOptions;

  constructor(options: ReservationRegistryOptions) {
    this.#options = options;
  }

  /** Creates or replaces the reservation of a label. */
  put(tenant: string, request: ReservationRequest): Promise<Reservation> {
    return this.#write(tenant, request, 'put');
  }

  /** Changes the existing reservation of a label. */
  update(tenant: string, request: ReservationRequest): Promise<Reservation> {
    return this.#write(tenant, request, 'update');
  }

  /** Returns the reservations of all labels of a version. */
  async list(tenant: string, name: string, version: string): Promise<Reservation[]> {
    const { database, functions } = this.#options;
    const found = await listReservations(database, { tenant, name, version });
    if (found.length === 0) await functions.get(tenant, name, version);
    return found;
  }

  /** Deletes the reservation of a label; `''`: of all labels. */
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

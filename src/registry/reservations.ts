import { LIMITS } from '../core/limits.ts';
import {
  createClusters,
  type Reservation,
  type ReservationRequest,
  type ReservedCluster,
  updateClusters,
} from '../core/reservation.ts';
import { LATEST } from '../core/urn.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  deleteReservations,
  holdVersion,
  listReservations,
  putReservation,
  type ReservationKey,
} from '../storage/reservations.ts';
import type { ChangeFeed } from './change-feed.ts';
import { functionNotFound, wrongForStored } from './errors.ts';
import type { FunctionRegistry } from './functions.ts';

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
    return this.#write(tenant, request, (_, functionMax) => createClusters(request.clusters, functionMax));
  }

  /** Changes the reservation of a label that was created before. */
  update(tenant: string, request: ReservationRequest): Promise<Reservation> {
    return this.#write(tenant, request, (stored, functionMax) => {
      if (stored === null) {
        throw wrongForStored(
          `reserved instances of ${request.funcName}:${request.version} with the label "${request.instanceLabel}" were not created before`,
        );
      }
      const merged = updateClusters(stored, request.clusters, functionMax);
      if (!merged.ok) throw wrongForStored(merged.problems.join('; '));
      return merged.value;
    });
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
    await writes.write(async transaction => {
      await this.#hold(transaction, { tenant, name, version });
      const label = instanceLabel === '' ? null : instanceLabel;
      if ((await deleteReservations(transaction, tenant, name, version, label)) > 0) return;
      const of = label === null ? '' : ` with the label "${label}"`;
      throw wrongForStored(`reserved instances of ${name}:${version}${of} were not created before`);
    });
    changes.emit({ kind: 'reserved', tenant, name, version, mayKeepInstances: true });
  }

  async #write(
    tenant: string,
    { funcName: name, version, instanceLabel: label, clusters: requested }: ReservationRequest,
    decide: (stored: readonly ReservedCluster[] | null, functionMax: number) => readonly ReservedCluster[],
  ): Promise<Reservation> {
    const { writes, changes } = this.#options;
    const key = { tenant, name, version };
    const written = await writes.write(async transaction => {
      const record = await this.#hold(transaction, key);
      this.#checkClusters(requested.map(cluster => cluster.clusterId));
      const all = await listReservations(transaction, key);
      const stored = all.find(reservation => reservation.label === label) ?? null;
      const { maxInstance } = JSON.parse(record) as { maxInstance: number };
      const clusters = decide(stored?.clusters ?? null, maxInstance);
      if (stored === null && all.length >= LIMITS.reservedLabels) {
        throw wrongForStored(
          `${name}:${version} has ${LIMITS.reservedLabels} labels, and there may be no more: delete one first`,
        );
      }
      await putReservation(transaction, key, { label, clusters });
      return { label, clusters };
    });
    changes.emit({ kind: 'reserved', ...key, mayKeepInstances: true });
    return written;
  }

  async #hold(transaction: Database, key: ReservationKey): Promise<string> {
    const record = await holdVersion(transaction, key);
    if (record !== null) return record;
    const latest = key.version === LATEST ? null : await holdVersion(transaction, { ...key, version: LATEST });
    throw functionNotFound(latest === null ? key.name : `${key.name}:${key.version}`);
  }

  #checkClusters(named: readonly string[]): void {
    const { clusters } = this.#options;
    const unknown = named.filter(cluster => !clusters.includes(cluster));
    if (unknown.length === 0) return;
    const list = (names: readonly string[]) => names.map(name => `"${name}"`).join(', ');
    throw wrongForStored(`unknown cluster ${list(unknown)}; this installation has ${list(clusters)}`);
  }
}

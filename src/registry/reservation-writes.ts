import { LIMITS } from '../core/limits.ts';
import {
  createClusters,
  type Reservation,
  type ReservationRequest,
  type ReservedCluster,
  updateClusters,
} from '../core/reservation.ts';
import { LATEST } from '../core/urn.ts';
import type { WriteTransaction } from '../storage/database.ts';
import { aloneWithFunction } from '../storage/queries/functions.ts';
import {
  deleteReservations,
  holdVersion,
  listReservations,
  putReservation,
  type ReservationKey,
} from '../storage/queries/reservations.ts';
import { publishChange } from './change-feed.ts';
import { functionNotFound, wrongForStored } from './errors.ts';

/** Changes of reservations: write operations of `DurableWrites`. `ReservationRegistry` lists their errors. */

/**
 * Writes a reservation. `update` needs a stored reservation and keeps members that were not sent.
 * `installed`: the clusters that may be named.
 */
export async function writeReservation(
  transaction: WriteTransaction,
  tenant: string,
  { funcName: name, version, instanceLabel: label, clusters: requested }: ReservationRequest,
  how: 'put' | 'update',
  installed: readonly string[],
): Promise<Reservation> {
  const key = { tenant, name, version };
  const record = await lockReservation(transaction, key);
  checkClusters(
    requested.map(cluster => cluster.clusterId),
    installed,
  );
  const all = await listReservations(transaction, key);
  const stored = all.find(reservation => reservation.label === label) ?? null;
  const { maxInstance } = JSON.parse(record) as { maxInstance: number };
  let clusters: readonly ReservedCluster[];
  if (how === 'put') clusters = createClusters(requested, maxInstance);
  else if (stored === null) {
    throw wrongForStored(`reserved instances of ${name}:${version} with the label "${label}" were not created before`);
  } else {
    const merged = updateClusters(stored.clusters, requested, maxInstance);
    if (!merged.ok) throw wrongForStored(merged.problems.join('; '));
    clusters = merged.value;
  }
  if (stored === null && all.length >= LIMITS.reservedLabels) {
    throw wrongForStored(
      `${name}:${version} has ${LIMITS.reservedLabels} labels, and there may be no more: delete one first`,
    );
  }
  await putReservation(transaction, key, { label, clusters });
  await publishChange(transaction, tenant, name);
  return { label, clusters };
}

/** Deletes the reservation of a label; null: of all labels. */
export async function dropReservations(
  transaction: WriteTransaction,
  key: ReservationKey,
  label: string | null,
): Promise<void> {
  await lockReservation(transaction, key);
  const { tenant, name, version } = key;
  if ((await deleteReservations(transaction, tenant, name, version, label)) > 0) {
    await publishChange(transaction, tenant, name);
    return;
  }
  const of = label === null ? '' : ` with the label "${label}"`;
  throw wrongForStored(`reserved instances of ${name}:${version}${of} were not created before`);
}

/** Returns the record of the version, locked against other changes of its reservations. */
async function lockReservation(transaction: WriteTransaction, key: ReservationKey): Promise<string> {
  await aloneWithFunction(transaction, key.tenant, key.name);
  const record = await holdVersion(transaction, key);
  if (record !== null) return record;
  const latest = key.version === LATEST ? null : await holdVersion(transaction, { ...key, version: LATEST });
  throw functionNotFound(latest === null ? key.name : `${key.name}:${key.version}`);
}

function checkClusters(named: readonly string[], installed: readonly string[]): void {
  const unknown = named.filter(cluster => !installed.includes(cluster));
  if (unknown.length === 0) return;
  const list = (names: readonly string[]) => names.map(name => `"${name}"`).join(', ');
  throw wrongForStored(`unknown cluster ${list(unknown)}; this installation has ${list(installed)}`);
}

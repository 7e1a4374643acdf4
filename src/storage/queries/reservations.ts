import { type Kysely, sql } from 'kysely';
import type { Reservation, ReservedCluster } from '../../core/reservation.ts';
import type { Tables } from '../database.ts';

export interface ReservationKey {
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
}

/** Returns the reservations of a function version, ordered by label. */
export async function listReservations(
  db: Kysely<Tables>,
  { tenant, name, version }: ReservationKey,
): Promise<Reservation[]> {
  const rows = await db
    .selectFrom('reservations')
    .select(['label', 'clusters'])
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '=', version)
    .orderBy('label')
    .execute();
  return rows.map(({ label, clusters }) => ({ label, clusters: JSON.parse(clusters) as ReservedCluster[] }));
}

/**
 * Blocks other changes of a function version's reservations until the transaction ends. Returns the JSON text
 * of the version's record, or null when there is no such version.
 */
export async function holdVersion(
  transaction: Kysely<Tables>,
  { tenant, name, version }: ReservationKey,
): Promise<string | null> {
  const row = await transaction
    .updateTable('functions')
    .set({ default_published_at_ms: sql`default_published_at_ms` })
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '=', version)
    .returning('record')
    .executeTakeFirst();
  return row?.record ?? null;
}

/** Creates or replaces the reservation of a label. */
export async function putReservation(
  transaction: Kysely<Tables>,
  key: ReservationKey,
  { label, clusters }: Reservation,
): Promise<void> {
  const { tenant, name, version } = key;
  const text = JSON.stringify(clusters);
  await transaction
    .insertInto('reservations')
    .values({ tenant, name, version, label, clusters: text })
    .onConflict(conflict => conflict.columns(['tenant', 'name', 'version', 'label']).doUpdateSet({ clusters: text }))
    .execute();
}

/**
 * Deletes the reservation of a label. With label null, deletes those of a version; with version null, those
 * of a function. Returns how many were deleted.
 */
export async function deleteReservations(
  transaction: Kysely<Tables>,
  tenant: string,
  name: string,
  version: string | null,
  label: string | null,
): Promise<number> {
  let query = transaction.deleteFrom('reservations').where('tenant', '=', tenant).where('name', '=', name);
  if (version !== null) query = query.where('version', '=', version);
  if (label !== null) query = query.where('label', '=', label);
  return Number((await query.executeTakeFirst()).numDeletedRows);
}

import { type Kysely, type Selectable, sql } from 'kysely';
import type { Pool, PoolSpec } from '../../core/pool.ts';
import type { Tables } from '../database.ts';
import type { PoolTable } from '../schema.ts';

/** Feed topic: callers changed pools. */
export const TOPIC_POOLS = 'pools';

/** Exact; `''` = any. */
export interface PoolFilter {
  readonly id: string;
  readonly group: string;
}

const NEXT_CHANGE = sql<number>`(select coalesce(max(change_seq), 0) + 1 from pools)`;

/** Inserts a pool. Returns false and writes nothing when its id is taken. */
export async function insertPool(
  transaction: Kysely<Tables>,
  { spec, status, msg, readyCount }: Pool,
): Promise<boolean> {
  const row = await transaction
    .insertInto('pools')
    .values({
      id: spec.id,
      pool_group: spec.group,
      change_seq: NEXT_CHANGE,
      status,
      msg,
      ready_count: readyCount,
      spec: JSON.stringify(spec),
    })
    .onConflict(conflict => conflict.doNothing())
    .returning('id')
    .executeTakeFirst();
  return row !== undefined;
}

/** Returns one page, newest change first, and the total count. */
export async function listPools(
  db: Kysely<Tables>,
  filter: PoolFilter,
  limit: number,
  offset: number,
): Promise<{ count: number; pools: Pool[] }> {
  const found = matching(db, filter);
  const { count } = await found.select(eb => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  const rows = await found
    .selectAll()
    .orderBy('change_seq', 'desc')
    .orderBy('id', 'desc')
    .limit(limit)
    .offset(offset)
    .execute();
  return { count: Number(count), pools: rows.map(toPool) };
}

/** Locks and returns the pools that match a filter, until the transaction ends. */
export async function holdPools(transaction: Kysely<Tables>, { id, group }: PoolFilter): Promise<Pool[]> {
  let query = transaction.updateTable('pools').set({ msg: sql`msg` });
  if (id !== '') query = query.where('id', '=', id);
  if (group !== '') query = query.where('pool_group', '=', group);
  const rows = await query.returningAll().execute();
  // The database returns them in any order.
  rows.sort((a, b) => a.change_seq - b.change_seq || (a.id < b.id ? -1 : 1));
  return rows.map(toPool);
}

/** Replaces a pool, as the newest change. */
export async function updatePool(transaction: Kysely<Tables>, { spec, status, msg, readyCount }: Pool): Promise<void> {
  await transaction
    .updateTable('pools')
    .set({ status, msg, ready_count: readyCount, spec: JSON.stringify(spec), change_seq: NEXT_CHANGE })
    .where('id', '=', spec.id)
    .execute();
}

/** Writes the state that a controller observed. Does not count as a change of the pool. */
export async function reportPool(
  transaction: Kysely<Tables>,
  id: string,
  { status, msg, readyCount }: Omit<Pool, 'spec'>,
): Promise<void> {
  await transaction.updateTable('pools').set({ status, msg, ready_count: readyCount }).where('id', '=', id).execute();
}

export async function deletePools(transaction: Kysely<Tables>, ids: readonly string[]): Promise<void> {
  await transaction.deleteFrom('pools').where('id', 'in', ids).execute();
}

function matching(db: Kysely<Tables>, { id, group }: PoolFilter) {
  let query = db.selectFrom('pools');
  if (id !== '') query = query.where('id', '=', id);
  if (group !== '') query = query.where('pool_group', '=', group);
  return query;
}

function toPool(row: Selectable<PoolTable>): Pool {
  return {
    spec: JSON.parse(row.spec) as PoolSpec,
    status: row.status,
    msg: row.msg,
    readyCount: row.ready_count,
  };
}

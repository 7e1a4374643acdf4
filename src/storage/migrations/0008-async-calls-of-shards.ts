import type { Kysely } from 'kysely';

/**
 * Adds the shard of each call: the node that holds the shard's lease runs the call. Older calls have no
 * shard: one process alone uses their database and runs them all.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('async_calls')
    .addColumn('shard', 'text', column => column.notNull().defaultTo(''))
    .execute();
  await db.schema
    .alterTable('async_calls')
    .addColumn('lease_epoch', 'bigint', column => column.notNull().defaultTo(0))
    .execute();
}

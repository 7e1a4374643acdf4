import type { Kysely } from 'kysely';

/** The node that holds the lease of a call's shard runs it. Older calls name no shard: only one process uses their database, and runs them all. */
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

import type { Kysely } from 'kysely';

/** Adds the state of restart policies of agents. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('instances')
    .addColumn('restarts_in_row', 'bigint', column => column.notNull().defaultTo(0))
    .execute();
  await db.schema
    .alterTable('instances')
    .addColumn('restart_at_ms', 'bigint', column => column.notNull().defaultTo(0))
    .execute();
}

import type { Kysely } from 'kysely';

/** Creates the table of agents and functions whose calls are all recorded for a time. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('call_recordings')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('kind', 'text', column => column.notNull())
    .addColumn('target', 'text', column => column.notNull())
    .addColumn('started_at_ms', 'bigint', column => column.notNull())
    .addColumn('ends_at_ms', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('call_recordings_key', ['tenant', 'kind', 'target'])
    .execute();
}

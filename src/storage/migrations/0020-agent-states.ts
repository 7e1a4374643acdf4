import type { Kysely } from 'kysely';

/** Creates the table of the states of durable agents. A state goes with its agent. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('agent_states')
    .addColumn('agent_id', 'text', column => column.primaryKey().references('instances.id').onDelete('cascade'))
    .addColumn('version', 'bigint', column => column.notNull())
    .addColumn('schema', 'bigint', column => column.notNull())
    .addColumn('bytes', 'bigint', column => column.notNull())
    .addColumn('state', 'text', column => column.notNull())
    .addColumn('saved_at_ms', 'bigint', column => column.notNull())
    .execute();
}

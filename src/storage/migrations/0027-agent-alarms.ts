import { type Kysely, sql } from 'kysely';

/** Creates the table of the alarms of durable agents. The index has the times of the next deliveries. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('agent_alarms')
    .addColumn('agent_id', 'text', column => column.notNull().references('instances.id').onDelete('cascade'))
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('id', 'text', column => column.notNull())
    .addColumn('rule', 'text', column => column.notNull())
    .addColumn('payload', 'text', column => column.notNull())
    .addColumn('scheduled_at_ms', 'bigint', column => column.notNull())
    .addColumn('due_at_ms', 'bigint', column => column.notNull())
    .addColumn('max_late_ms', 'bigint', column => column.notNull())
    .addColumn('missed', 'bigint', column => column.notNull())
    .addColumn('attempt', 'integer', column => column.notNull())
    .addColumn('failed', 'integer', column => column.notNull())
    .addColumn('last_error', 'text', column => column.notNull())
    .addPrimaryKeyConstraint('agent_alarms_key', ['agent_id', 'name'])
    .execute();
  await db.schema
    .createIndex('agent_alarms_due')
    .on('agent_alarms')
    .column('due_at_ms')
    .where(sql<boolean>`failed = 0`)
    .execute();
}

import type { Kysely } from 'kysely';

/** Creates the tables of function instances and of asynchronous calls. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('service_instances')
    .addColumn('id', 'text', column => column.primaryKey())
    .addColumn('node_id', 'text', column => column.notNull())
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('urn', 'text', column => column.notNull())
    .addColumn('revision_id', 'text', column => column.notNull())
    .addColumn('group_key', 'text', column => column.notNull())
    .addColumn('sandbox_type', 'text', column => column.notNull())
    .addColumn('handle', 'text', column => column.notNull())
    .addColumn('secret', 'text', column => column.notNull())
    .addColumn('concurrency', 'integer', column => column.notNull())
    .addColumn('max_call_ms', 'bigint', column => column.notNull())
    .addColumn('stop_grace_ms', 'integer', column => column.notNull())
    .addColumn('code_source', 'text', column => column.notNull())
    .addColumn('started_at_ms', 'bigint', column => column.notNull())
    .execute();
  await db.schema.createIndex('service_instances_node').on('service_instances').column('node_id').execute();

  await db.schema
    .createTable('async_calls')
    .addColumn('id', 'text', column => column.primaryKey())
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('urn', 'text', column => column.notNull())
    .addColumn('status', 'text', column => column.notNull())
    .addColumn('request', 'text', column => column.notNull())
    .addColumn('body', 'blob', column => column.notNull())
    .addColumn('webhook_url', 'text', column => column.notNull())
    .addColumn('result', 'text')
    .addColumn('error', 'text')
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addColumn('completed_at_ms', 'bigint')
    .execute();
  // The queue is read oldest first, and results are removed oldest first.
  await db.schema
    .createIndex('async_calls_queue')
    .on('async_calls')
    .columns(['status', 'created_at_ms', 'id'])
    .execute();
  await db.schema.createIndex('async_calls_done').on('async_calls').column('completed_at_ms').execute();
}

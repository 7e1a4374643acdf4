import type { Kysely } from 'kysely';

/** Creates the table of agents. Migration 0005 replaces it by one table of all instances. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('instances')
    .addColumn('id', 'text', column => column.primaryKey())
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('namespace', 'text', column => column.notNull())
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('status', 'text', column => column.notNull())
    .addColumn('status_reason', 'text', column => column.notNull())
    .addColumn('load_error', 'text', column => column.notNull())
    .addColumn('restarts', 'integer', column => column.notNull())
    .addColumn('node_id', 'text', column => column.notNull())
    .addColumn('spec', 'text', column => column.notNull())
    .addColumn('sandbox', 'text', column => column.notNull())
    .addColumn('handle', 'text')
    .addColumn('secret', 'text', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addColumn('started_at_ms', 'bigint', column => column.notNull())
    .addColumn('idempotency_key', 'text')
    .addColumn('request_hash', 'text')
    .execute();
  // At most one instance holds a name: the database decides races.
  await db.schema
    .createIndex('instances_name')
    .unique()
    .on('instances')
    .columns(['tenant', 'namespace', 'name'])
    .execute();
  await db.schema
    .createIndex('instances_idempotency')
    .unique()
    .on('instances')
    .columns(['tenant', 'idempotency_key'])
    .execute();
  // Lists of a tenant are ordered by id.
  await db.schema.createIndex('instances_tenant_id').on('instances').columns(['tenant', 'id']).execute();
}

import type { Kysely } from 'kysely';

/** Creates the tables of functions, reservations and pools. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('functions')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('version', 'text', column => column.notNull())
    .addColumn('revision_id', 'text', column => column.notNull())
    .addColumn('change_seq', 'bigint', column => column.notNull())
    .addColumn('default_published_at_ms', 'bigint', column => column.notNull())
    .addColumn('host_code_path', 'text', column => column.notNull())
    .addColumn('code_token', 'text', column => column.notNull())
    .addColumn('record', 'text', column => column.notNull())
    .addPrimaryKeyConstraint('functions_key', ['tenant', 'name', 'version'])
    .execute();
  // Both lists read their page in index order. The indexes have `name`, so that a search by name reads the
  // index only.
  await db.schema
    .createIndex('functions_by_change')
    .on('functions')
    .columns(['tenant', 'change_seq', 'name'])
    .execute();
  await db.schema
    .createIndex('functions_by_version')
    .on('functions')
    .columns(['tenant', 'version', 'change_seq', 'name'])
    .execute();

  await db.schema
    .createTable('function_totals')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('version', 'text', column => column.notNull())
    .addColumn('total', 'bigint', column => column.notNull())
    .addColumn('last_change', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('function_totals_key', ['tenant', 'version'])
    .execute();

  await db.schema
    .createTable('reservations')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('version', 'text', column => column.notNull())
    .addColumn('label', 'text', column => column.notNull())
    .addColumn('clusters', 'text', column => column.notNull())
    .addPrimaryKeyConstraint('reservations_key', ['tenant', 'name', 'version', 'label'])
    .execute();

  await db.schema
    .createTable('pools')
    .addColumn('id', 'text', column => column.primaryKey())
    .addColumn('pool_group', 'text', column => column.notNull())
    .addColumn('change_seq', 'bigint', column => column.notNull())
    .addColumn('status', 'integer', column => column.notNull())
    .addColumn('msg', 'text', column => column.notNull())
    .addColumn('ready_count', 'integer', column => column.notNull())
    .addColumn('spec', 'text', column => column.notNull())
    .execute();
  await db.schema.createIndex('pools_by_change').on('pools').columns(['change_seq', 'id']).execute();
  await db.schema.createIndex('pools_by_group').on('pools').columns(['pool_group', 'change_seq']).execute();
}

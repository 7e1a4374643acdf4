import type { Kysely } from 'kysely';

/** Creates the tables of templates that tenants build, and of the files that their clients upload. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('template_builds')
    .addColumn('id', 'text', column => column.primaryKey())
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('template_id', 'text', column => column.notNull())
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('status', 'text', column => column.notNull())
    .addColumn('reason', 'text', column => column.notNull())
    .addColumn('step', 'text', column => column.notNull())
    .addColumn('tags', 'text', column => column.notNull())
    .addColumn('sha256', 'text', column => column.notNull())
    .addColumn('spec', 'text', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addColumn('updated_at_ms', 'bigint', column => column.notNull())
    .execute();
  await db.schema
    .createIndex('template_builds_of_tenant')
    .on('template_builds')
    .columns(['tenant', 'name', 'created_at_ms'])
    .execute();
  await db.schema
    .createTable('template_files')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('hash', 'text', column => column.notNull())
    .addColumn('sha256', 'text', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('template_files_key', ['tenant', 'hash'])
    .execute();
}

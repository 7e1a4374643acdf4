import type { Kysely } from 'kysely';

/** Uploaded code by its content, and its bytes where replicas share nothing but the database. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('code_packages')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('sha256', 'text', column => column.notNull())
    .addColumn('place', 'text', column => column.notNull())
    .addColumn('blob', 'text', column => column.notNull())
    .addColumn('bytes', 'bigint', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addColumn('used_at_ms', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('code_packages_key', ['tenant', 'sha256'])
    .execute();
  await db.schema
    .createTable('code_package_parts')
    .addColumn('blob', 'text', column => column.notNull())
    .addColumn('part', 'bigint', column => column.notNull())
    .addColumn('at_ms', 'bigint', column => column.notNull())
    .addColumn('content', 'bytea', column => column.notNull())
    .addPrimaryKeyConstraint('code_package_parts_key', ['blob', 'part'])
    .execute();
}

import type { Kysely } from 'kysely';

/**
 * Creates the tables of uploaded code, by its content, and of its bytes. The database holds the bytes when
 * replicas share nothing else.
 */
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

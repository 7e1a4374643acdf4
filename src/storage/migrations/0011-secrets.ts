import type { Kysely } from 'kysely';

/** Creates the table of secrets, which are encrypted: the key is not in the database. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('secrets')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('key_id', 'text', column => column.notNull())
    .addColumn('sealed', 'bytea', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addColumn('updated_at_ms', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('secrets_key', ['tenant', 'name'])
    .execute();
}

import type { Kysely } from 'kysely';

/** Creates the table of API keys, which has their hashes only. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('api_keys')
    .addColumn('hash', 'text', column => column.primaryKey())
    .addColumn('id', 'text', column => column.notNull().unique())
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('role', 'text', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .execute();
  await db.schema.createIndex('api_keys_of_tenant').on('api_keys').columns(['tenant', 'id']).execute();
}

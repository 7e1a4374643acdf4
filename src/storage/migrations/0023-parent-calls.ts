import { type Kysely, sql } from 'kysely';

/** Adds the call that made a call. The index has only calls with one. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('calls')
    .addColumn('parent', 'text', column => column.notNull().defaultTo(''))
    .execute();
  await db.schema
    .createIndex('calls_of_parent')
    .on('calls')
    .column('parent')
    .where(sql<boolean>`parent <> ''`)
    .execute();
}

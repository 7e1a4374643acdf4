import type { Kysely } from 'kysely';

/** Adds the spans of a call's handler. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('calls')
    .addColumn('spans', 'text', column => column.notNull().defaultTo(''))
    .execute();
}

import { type Kysely, sql } from 'kysely';

/** Counts the starts that ended a sleep, and leaves sleeping agents out of the index of sandboxes. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('instances')
    .addColumn('wakes', 'integer', column => column.notNull().defaultTo(0))
    .execute();
  await db.schema.dropIndex('instances_sandboxes').execute();
  await db.schema
    .createIndex('instances_sandboxes')
    .on('instances')
    .column('node_id')
    .where(sql<boolean>`(owner_kind <> 'agent' or status not in ('FAILED', 'SLEEPING'))`)
    .execute();
}

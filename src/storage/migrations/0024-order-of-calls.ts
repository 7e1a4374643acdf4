import { type Kysely, sql } from 'kysely';

/**
 * Numbers the records of each tenant in the order of their commits. Records of a program without this column
 * have the number 0, which the index leaves out.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const [table, column] of [
    ['calls', 'seq'],
    ['call_totals', 'last_seq'],
  ] as const) {
    await db.schema
      .alterTable(table)
      .addColumn(column, 'bigint', added => added.notNull().defaultTo(0))
      .execute();
  }
  await db.schema
    .createIndex('calls_in_order')
    .on('calls')
    .columns(['tenant', 'seq'])
    .where(sql<boolean>`seq > 0`)
    .execute();
}

import type { Kysely } from 'kysely';

/** Adds what lists select agents by, their times to live and their pauses. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const name of ['labels', 'template'] as const)
    await db.schema
      .alterTable('instances')
      .addColumn(name, 'text', column => column.notNull().defaultTo(''))
      .execute();
  for (const name of ['ttl_ms', 'expires_at_ms', 'paused_at_ms'] as const)
    await db.schema
      .alterTable('instances')
      .addColumn(name, 'bigint', column => column.notNull().defaultTo(0))
      .execute();
}

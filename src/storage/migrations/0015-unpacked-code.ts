import type { Kysely } from 'kysely';

/** Adds the unpacked size of a code package; 0 for packages that an earlier version stored. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable('code_packages')
    .addColumn('unpacked_bytes', 'bigint', column => column.notNull().defaultTo(0))
    .execute();
}

import { randomBytes } from 'node:crypto';
import type { Kysely } from 'kysely';

interface Tables {
  address_key: { singleton: number; key: string };
}

const KEY_BYTES = 32;

/** Creates the key that signs links to public URLs. All replicas and all later starts use the same key. */
export async function up(unknownDb: Kysely<unknown>): Promise<void> {
  const db = unknownDb as Kysely<Tables>;
  await db.schema
    .createTable('address_key')
    .addColumn('singleton', 'integer', column => column.primaryKey())
    .addColumn('key', 'text', column => column.notNull())
    .execute();
  const key = randomBytes(KEY_BYTES).toString('base64url');
  await db.insertInto('address_key').values({ singleton: 1, key }).execute();
}

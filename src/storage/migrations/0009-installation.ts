import { randomUUID } from 'node:crypto';
import type { Kysely } from 'kysely';

interface Tables {
  installation: { singleton: number; id: string };
}

/**
 * Creates the id of this installation, shared by all replicas over a database. By this id, replicas recognize
 * their own objects in a Kubernetes cluster that others use too.
 */
export async function up(unknownDb: Kysely<unknown>): Promise<void> {
  const db = unknownDb as Kysely<Tables>;
  await db.schema
    .createTable('installation')
    .addColumn('singleton', 'integer', column => column.primaryKey())
    .addColumn('id', 'text', column => column.notNull())
    .execute();
  await db.insertInto('installation').values({ singleton: 1, id: randomUUID() }).execute();
}

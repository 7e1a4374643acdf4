import type { Kysely } from 'kysely';

/** The columns that this migration writes. */
interface Tables {
  leases: { name: string; node_id: string; node_epoch: number; epoch: number };
  feed_counter: { id: number; seq: number };
}

const SHARDS = 64;

/** Creates the tables through which replicas coordinate. The embedded database does not use them. */
export async function up(unknownDb: Kysely<unknown>): Promise<void> {
  const db = unknownDb as Kysely<Tables>;
  await db.schema
    .createTable('nodes')
    .addColumn('id', 'text', column => column.primaryKey())
    .addColumn('epoch', 'bigint', column => column.notNull())
    .addColumn('advertise', 'text', column => column.notNull())
    .addColumn('roles', 'text', column => column.notNull())
    .addColumn('version', 'text', column => column.notNull())
    .addColumn('joined_at_ms', 'bigint', column => column.notNull())
    .addColumn('expires_at_ms', 'bigint', column => column.notNull())
    .execute();

  await db.schema
    .createTable('leases')
    .addColumn('name', 'text', column => column.primaryKey())
    .addColumn('node_id', 'text', column => column.notNull())
    .addColumn('node_epoch', 'bigint', column => column.notNull())
    .addColumn('epoch', 'bigint', column => column.notNull())
    .execute();
  const shards = Array.from({ length: SHARDS }, (_, index) => `shard-${String(index).padStart(2, '0')}`);
  const free = [...shards, 'jobs', 'sweeper'].map(name => ({ name, node_id: '', node_epoch: 0, epoch: 0 }));
  await db.insertInto('leases').values(free).execute();

  await db.schema
    .createTable('feed_counter')
    .addColumn('id', 'integer', column => column.primaryKey())
    .addColumn('seq', 'bigint', column => column.notNull())
    .execute();
  await db.insertInto('feed_counter').values({ id: 1, seq: 0 }).execute();
  await db.schema
    .createTable('feed')
    .addColumn('seq', 'bigint', column => column.primaryKey())
    .addColumn('topic', 'text', column => column.notNull())
    // Null: everything of the topic may have changed.
    .addColumn('key', 'text')
    .addColumn('origin', 'text', column => column.notNull())
    .addColumn('at_ms', 'bigint', column => column.notNull())
    .execute();
  // Old changes are removed by age.
  await db.schema.createIndex('feed_at').on('feed').column('at_ms').execute();
}

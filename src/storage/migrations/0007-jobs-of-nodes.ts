import { type Kysely, sql } from 'kysely';

/**
 * Which process of its node runs a job, whether its log is in the object store, until when the schedules have been looked at, and who has which
 * package. The version before reads and writes all of this without knowing of it.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  const add = (table: string, name: string) =>
    db.schema
      .alterTable(table)
      .addColumn(name, 'bigint', column => column.notNull().defaultTo(0))
      .execute();
  await add('jobs', 'node_epoch');
  await add('jobs', 'is_log_stored');
  await add('job_schedules', 'decided_until_ms');
  // Those that are not over are counted with each submit.
  await db.schema
    .createIndex('jobs_open')
    .on('jobs')
    .column('tenant')
    .where(sql.ref('ended_at_ms'), 'is', null)
    .execute();
  await db.schema
    .createTable('job_packages')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('name', 'text', column => column.notNull())
    .addColumn('node_id', 'text', column => column.notNull())
    .addColumn('node_epoch', 'bigint', column => column.notNull())
    .addColumn('object', 'text', column => column.notNull())
    .addColumn('bytes', 'bigint', column => column.notNull())
    .addColumn('sha256', 'text', column => column.notNull())
    .addColumn('used_at_ms', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('job_packages_key', ['tenant', 'name', 'node_id'])
    .execute();
}

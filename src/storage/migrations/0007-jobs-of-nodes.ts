import { type Kysely, sql } from 'kysely';

/**
 * Adds the process that runs a job, the state of its log, decided schedule times, and locations of packages.
 * The version before this one can read and write the tables unchanged.
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
  // Each submit counts the unfinished jobs.
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

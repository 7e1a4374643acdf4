import type { Kysely } from 'kysely';

/** Creates the tables of jobs and their schedules. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('jobs')
    .addColumn('sequence', 'bigint', column => column.primaryKey())
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('id', 'text', column => column.notNull())
    .addColumn('fingerprint', 'text', column => column.notNull())
    .addColumn('node_id', 'text', column => column.notNull())
    .addColumn('spec', 'text', column => column.notNull())
    .addColumn('status', 'text', column => column.notNull())
    .addColumn('message', 'text', column => column.notNull())
    .addColumn('error_type', 'text', column => column.notNull())
    .addColumn('exit_code', 'integer')
    .addColumn('attempt', 'integer', column => column.notNull())
    .addColumn('not_before_ms', 'bigint', column => column.notNull())
    .addColumn('instance_id', 'text', column => column.notNull())
    .addColumn('handle', 'text')
    .addColumn('pid', 'text', column => column.notNull())
    .addColumn('stop_reason', 'text', column => column.notNull())
    .addColumn('submitted_at_ms', 'bigint', column => column.notNull())
    .addColumn('started_at_ms', 'bigint')
    .addColumn('ended_at_ms', 'bigint')
    .execute();
  await db.schema.createIndex('jobs_id').unique().on('jobs').columns(['tenant', 'id']).execute();
  // Lists read a tenant's jobs page by page.
  await db.schema.createIndex('jobs_tenant').on('jobs').columns(['tenant', 'sequence']).execute();
  // Few of the stored jobs are unfinished.
  await db.schema.createIndex('jobs_status').on('jobs').columns(['status', 'sequence']).execute();
  await db.schema.createIndex('jobs_instance').on('jobs').column('instance_id').execute();
  await db.schema.createIndex('jobs_ended').on('jobs').column('ended_at_ms').execute();

  await db.schema
    .createTable('job_schedules')
    .addColumn('tenant', 'text', column => column.notNull())
    .addColumn('id', 'text', column => column.notNull())
    .addColumn('cron', 'text', column => column.notNull())
    .addColumn('timezone', 'text', column => column.notNull())
    .addColumn('overlap', 'text', column => column.notNull())
    .addColumn('submission', 'text', column => column.notNull())
    .addColumn('created_at_ms', 'bigint', column => column.notNull())
    .addPrimaryKeyConstraint('job_schedules_key', ['tenant', 'id'])
    .execute();
}

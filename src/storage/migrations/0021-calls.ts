import type { Kysely } from 'kysely';

/** Creates the history of calls, and the bytes of each tenant in it. */
export async function up(db: Kysely<unknown>): Promise<void> {
  let calls = db.schema.createTable('calls').addColumn('id', 'text', column => column.primaryKey());
  for (const name of ['tenant', 'kind', 'subject', 'name', 'version', 'instance_id', 'node_id', 'mode'] as const)
    calls = calls.addColumn(name, 'text', column => column.notNull());
  for (const name of ['caller', 'trace_id', 'outcome', 'code'] as const)
    calls = calls.addColumn(name, 'text', column => column.notNull());
  for (const name of ['started_at_ms', 'elapsed_us', 'queue_us', 'place_us', 'start_us', 'load_us', 'run_us'] as const)
    calls = calls.addColumn(name, 'bigint', column => column.notNull());
  for (const name of ['input_bytes', 'output_bytes', 'input_cut', 'output_cut', 'bytes'] as const)
    calls = calls.addColumn(name, 'bigint', column => column.notNull());
  // The large columns come last: SQLite reads the others without them.
  for (const name of ['error', 'input', 'output'] as const)
    calls = calls.addColumn(name, 'text', column => column.notNull());
  await calls.execute();
  const order = ['started_at_ms', 'id'] as const;
  const indexes = {
    calls_of_tenant: ['tenant', ...order],
    calls_by_outcome: ['tenant', 'outcome', ...order],
    calls_by_subject: ['tenant', 'subject', ...order],
    calls_by_subject_and_outcome: ['tenant', 'subject', 'outcome', ...order],
    calls_of_trace: ['trace_id'],
  };
  for (const [name, columns] of Object.entries(indexes))
    await db.schema.createIndex(name).on('calls').columns(columns).execute();
  await db.schema
    .createTable('call_totals')
    .addColumn('tenant', 'text', column => column.primaryKey())
    .addColumn('bytes', 'bigint', column => column.notNull())
    .execute();
}

import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { CallRecordingTable } from '../schema.ts';
import { publish } from './feed.ts';

/** Feed topic: a recording began or ended. */
export const TOPIC_RECORDINGS = 'recordings';

type Key = Pick<CallRecordingTable, 'tenant' | 'kind' | 'target'>;

const lockOf = (tenant: string) => `call recordings: ${tenant}`;

/**
 * Stores a recording, or the new end of a recording that has not ended. Returns its start, or null if the
 * tenant has `most` others that have not ended.
 */
export async function putCallRecording(
  transaction: WriteTransaction,
  row: CallRecordingTable,
  most: number,
): Promise<number | null> {
  const { tenant, started_at_ms: nowMs } = row;
  await alone(transaction, lockOf(tenant));
  await transaction
    .deleteFrom('call_recordings')
    .where('tenant', '=', tenant)
    .where('ends_at_ms', '<=', nowMs)
    .execute();
  const known = await listCallRecordings(transaction, tenant);
  const before = known.find(({ kind, target }) => kind === row.kind && target === row.target);
  if (before === undefined && known.length >= most) return null;
  const startedAtMs = before === undefined ? nowMs : Number(before.started_at_ms);
  await transaction
    .insertInto('call_recordings')
    .values({ ...row, started_at_ms: startedAtMs })
    .onConflict(conflict => conflict.columns(['tenant', 'kind', 'target']).doUpdateSet({ ends_at_ms: row.ends_at_ms }))
    .execute();
  await publish(transaction, TOPIC_RECORDINGS, null);
  return startedAtMs;
}

/** Deletes a recording. Returns false if there is none that ends after `nowMs`. */
export async function deleteCallRecording(
  transaction: WriteTransaction,
  { tenant, kind, target }: Key,
  nowMs: number,
): Promise<boolean> {
  await alone(transaction, lockOf(tenant));
  const [deleted] = await transaction
    .deleteFrom('call_recordings')
    .where('tenant', '=', tenant)
    .where('kind', '=', kind)
    .where('target', '=', target)
    .returning('ends_at_ms')
    .execute();
  if (deleted === undefined) return false;
  await publish(transaction, TOPIC_RECORDINGS, null);
  return Number(deleted.ends_at_ms) > nowMs;
}

/** Returns the recordings of a tenant, or of all, ordered by their targets. */
export async function listCallRecordings(
  queries: Pick<Database, 'selectFrom'>,
  tenant: string | null,
): Promise<readonly CallRecordingTable[]> {
  const recordings = queries.selectFrom('call_recordings').selectAll();
  return await (tenant === null ? recordings : recordings.where('tenant', '=', tenant))
    .orderBy('tenant')
    .orderBy('kind')
    .orderBy('target')
    .execute();
}

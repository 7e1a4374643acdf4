import { type Kysely, sql } from 'kysely';
import type { LeaseFence } from '../../core/lease.ts';
import type { Database, Tables, WriteTransaction } from '../database.ts';
import type { AsyncCallTable } from '../schema.ts';
import { fence } from './leases.ts';

/**
 * Least size of a record in addition to its texts, with its index entries. Calls without a body therefore
 * have a limit too.
 */
export const ROW_BYTES = 256;

/** Counts the same bytes as `bytesOfEvent` and `bytesOfEnd`. */
const BYTES = sql<number>`${sql.lit(ROW_BYTES)} + octet_length(request) + octet_length(body)
  + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)`;

type AsyncCallQueries = Pick<Kysely<Tables>, 'insertInto' | 'updateTable' | 'selectFrom' | 'deleteFrom'>;

export type AsyncCallAnswer = Omit<AsyncCallTable, 'body' | 'request' | 'webhook_url' | 'shard' | 'lease_epoch'>;

/** The shards of the calls to read or change; null: all shards. */
export type Shards = readonly string[] | null;

/**
 * Stores a call under the lease of its shard, so that the next lease holder finds it queued. Fails with
 * `Fenced` when the lease is lost.
 */
export async function insertAsyncCall(
  transaction: WriteTransaction,
  row: AsyncCallTable,
  lease: LeaseFence | null,
): Promise<void> {
  await fence(transaction, lease);
  await transaction.insertInto('async_calls').values(row).execute();
}

export async function findAsyncCall(database: Database, id: string): Promise<AsyncCallAnswer | null> {
  const row = await database
    .selectFrom('async_calls')
    .select(['id', 'tenant', 'urn', 'status', 'result', 'error', 'created_at_ms', 'completed_at_ms'])
    .where('id', '=', id)
    .executeTakeFirst();
  return row ?? null;
}

export async function readAsyncCall(database: Database, id: string): Promise<AsyncCallTable | null> {
  return (await database.selectFrom('async_calls').selectAll().where('id', '=', id).executeTakeFirst()) ?? null;
}

/** Returns ids and owners of queued calls, oldest first. */
export async function listQueuedAsyncCalls(database: Database, shards: Shards) {
  let query = database
    .selectFrom('async_calls')
    .select(['id', 'tenant', 'urn', 'created_at_ms'])
    .where('status', '=', 'queued');
  if (shards !== null) query = query.where('shard', 'in', shards);
  return await query.orderBy('created_at_ms').orderBy('id').execute();
}

/**
 * Changes a call from `queued` to `processing` under the lease of its shard. Returns false when the call is
 * no longer queued. Fails with `Fenced` when the lease is lost.
 */
export async function claimAsyncCall(
  transaction: WriteTransaction,
  id: string,
  lease: LeaseFence | null,
): Promise<boolean> {
  await fence(transaction, lease);
  const { numUpdatedRows } = await transaction
    .updateTable('async_calls')
    .set({ status: 'processing', lease_epoch: lease?.epoch ?? 0 })
    .where('id', '=', id)
    .where('status', '=', 'queued')
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/**
 * Stores the end of a call, unless the next holder of the shard has stored one. A call that never ran needs
 * the lease: fails with `Fenced` when the lease is lost.
 */
export async function finishAsyncCall(
  transaction: WriteTransaction,
  id: string,
  lease: LeaseFence | null,
  end: { status: 'completed' | 'failed'; result: string | null; error: string | null; completed_at_ms: number },
): Promise<void> {
  const ending = transaction
    .updateTable('async_calls')
    .set({ ...end, ...NO_EVENT })
    .where('id', '=', id);
  const epoch = lease?.epoch ?? 0;
  const { numUpdatedRows } = await ending
    .where('status', '=', 'processing')
    .where('lease_epoch', '=', epoch)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows > 0n) return;
  await fence(transaction, lease);
  // One statement checks both states: the call could be claimed between two statements.
  await ending
    .where(({ eb, or, and }) =>
      or([eb('status', '=', 'queued'), and([eb('status', '=', 'processing'), eb('lease_epoch', '=', epoch)])]),
    )
    .execute();
}

/** Clears the request of an ended call, which is no longer needed and may be large. */
const NO_EVENT = { request: '', body: new Uint8Array(0) };

/**
 * Fails the calls of these shards that are marked `processing`, except `here`, which run in this process. The
 * processes of the others ended during the call. Returns how many were failed.
 */
export async function failProcessingAsyncCalls(
  queries: AsyncCallQueries,
  error: string,
  nowMs: number,
  shards: Shards,
  here: readonly string[],
): Promise<number> {
  let query = queries
    .updateTable('async_calls')
    .set({ status: 'failed', error, completed_at_ms: nowMs, ...NO_EVENT })
    .where('status', '=', 'processing');
  if (shards !== null) query = query.where('shard', 'in', shards);
  if (here.length > 0) query = query.where('id', 'not in', here);
  const { numUpdatedRows } = await query.executeTakeFirstOrThrow();
  return Number(numUpdatedRows);
}

/** Returns ended calls with a pending webhook, oldest first. */
export async function listUntoldAsyncCalls(database: Database, shards: Shards) {
  let query = database
    .selectFrom('async_calls')
    .select(['id', 'webhook_url'])
    .where('completed_at_ms', 'is not', null)
    .where('webhook_url', '!=', '');
  if (shards !== null) query = query.where('shard', 'in', shards);
  return await query.orderBy('completed_at_ms').execute();
}

/** Removes the URL of a webhook that was called or given up. */
export async function forgetWebhook(database: Database, id: string): Promise<void> {
  await database.updateTable('async_calls').set({ webhook_url: '' }).where('id', '=', id).execute();
}

/** Deletes at most `limit` results that were completed before `beforeMs`. Returns the size of each. */
export async function dropAsyncCalls(
  database: Database,
  beforeMs: number,
  limit: number,
): Promise<readonly AsyncCallBytes[]> {
  const rows = await database
    .deleteFrom('async_calls')
    .where('id', 'in', ({ selectFrom }) =>
      selectFrom('async_calls')
        .select('id')
        .where('completed_at_ms', '<', beforeMs)
        .orderBy('completed_at_ms')
        .limit(limit),
    )
    .returning(['tenant', BYTES.as('bytes')])
    .execute();
  return rows.map(toBytes);
}

/** Returns the completion time of the oldest result; null without results. */
export async function oldestCompletionMs(database: Database): Promise<number | null> {
  const row = await database
    .selectFrom('async_calls')
    .select(({ fn }) => fn.min('completed_at_ms').as('oldest'))
    .executeTakeFirst();
  return row?.oldest ?? null;
}

/** Stored bytes of events and results. */
export interface AsyncCallBytes {
  readonly tenant: string;
  readonly bytes: number;
}

/** Returns the stored bytes of each tenant. Reads all records. */
export async function sumAsyncCallBytes(database: Database): Promise<readonly AsyncCallBytes[]> {
  const rows = await database
    .selectFrom('async_calls')
    .select(['tenant', sql<number>`sum(${BYTES})`.as('bytes')])
    .groupBy('tenant')
    .execute();
  return rows.map(toBytes);
}

function toBytes({ tenant, bytes }: AsyncCallBytes): AsyncCallBytes {
  return { tenant, bytes: Number(bytes) };
}

/** Returns the disk space of a call until it ends. */
export function bytesOfEvent({ request, body }: Pick<AsyncCallTable, 'request' | 'body'>): number {
  return ROW_BYTES + Buffer.byteLength(request) + body.length;
}

/** Returns the disk space of a call after its end. */
export function bytesOfEnd({ result, error }: Pick<AsyncCallTable, 'result' | 'error'>): number {
  return ROW_BYTES + Buffer.byteLength(result ?? '') + Buffer.byteLength(error ?? '');
}

import { type Kysely, sql } from 'kysely';
import type { LeaseFence } from '../core/lease.ts';
import type { Database, Tables, WriteTransaction } from './database.ts';
import { fence } from './leases.ts';

export type AsyncCallStatus = 'queued' | 'processing' | 'completed' | 'failed';

/** Row of `async_calls`. */
export interface AsyncCallTable {
  id: string;
  tenant: string;
  urn: string;
  status: AsyncCallStatus;
  /** JSON: what the call asked for besides its body; `''` once it is over. */
  request: string;
  body: Uint8Array;
  /** `''`: none. */
  webhook_url: string;
  /** JSON text of the handler's value. */
  result: string | null;
  /** JSON of `{code, message}`. */
  error: string | null;
  created_at_ms: number;
  completed_at_ms: number | null;
  /** The shard of its function: the holder of the lease of this name runs it. */
  shard: string;
  /** The epoch of that lease when it was marked as running; 0 before. */
  lease_epoch: number;
}

/** What a row takes beside its texts, with its places in the indexes, at the least: calls of nothing have a bound too. */
export const ROW_BYTES = 256;

/** As `bytesOfEvent` and `bytesOfEnd` count them. */
const BYTES = sql<number>`${sql.lit(ROW_BYTES)} + octet_length(request) + octet_length(body)
  + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)`;

type Queries = Pick<Kysely<Tables>, 'insertInto' | 'updateTable' | 'selectFrom' | 'deleteFrom'>;

export type AsyncCallAnswer = Omit<AsyncCallTable, 'body' | 'request' | 'webhook_url' | 'shard' | 'lease_epoch'>;

/** Calls of which shards; null: of all. */
export type Shards = readonly string[] | null;

/** Under the lease of its shard, so that its next owner, who looks at what is queued, finds it. Fails with `Fenced` without it. */
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

/** Ids and owners of what waits, oldest first. */
export async function listQueuedAsyncCalls(database: Database, shards: Shards) {
  let query = database
    .selectFrom('async_calls')
    .select(['id', 'tenant', 'urn', 'created_at_ms'])
    .where('status', '=', 'queued');
  if (shards !== null) query = query.where('shard', 'in', shards);
  return await query.orderBy('created_at_ms').orderBy('id').execute();
}

/** `queued` → `processing` under the lease of its shard; false when it is not queued any more. */
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
 * Writes how a call ended, unless whoever took over its shard has done so. A call that never ran ends only under the lease: fails with
 * `Fenced` without it.
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
  // Both states in one statement: the call may be claimed between two.
  await ending
    .where(({ eb, or, and }) =>
      or([eb('status', '=', 'queued'), and([eb('status', '=', 'processing'), eb('lease_epoch', '=', epoch)])]),
    )
    .execute();
}

/** Of a call that is over: what it was asked with is of no use any more, and may be large. */
const NO_EVENT = { request: '', body: new Uint8Array(0) };

/** Calls of these shards that are marked as running were somebody's who ended in the middle, but for `here`: those run in this process. */
export async function failProcessingAsyncCalls(
  queries: Queries,
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

/** Ended calls whose webhook has not been called (nor given up), oldest first. */
export async function listUntoldAsyncCalls(database: Database, shards: Shards) {
  let query = database
    .selectFrom('async_calls')
    .select(['id', 'webhook_url'])
    .where('completed_at_ms', 'is not', null)
    .where('webhook_url', '!=', '');
  if (shards !== null) query = query.where('shard', 'in', shards);
  return await query.orderBy('completed_at_ms').execute();
}

/** Its webhook was called, or given up: nobody needs the address any more. */
export async function forgetWebhook(database: Database, id: string): Promise<void> {
  await database.updateTable('async_calls').set({ webhook_url: '' }).where('id', '=', id).execute();
}

/** Drops results that are older, so many at most. Answers what each of them took. */
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

/** When the oldest result was completed; null when there is none. */
export async function oldestCompletionMs(database: Database): Promise<number | null> {
  const row = await database
    .selectFrom('async_calls')
    .select(({ fn }) => fn.min('completed_at_ms').as('oldest'))
    .executeTakeFirst();
  return row?.oldest ?? null;
}

/** Of events and results that are kept. */
export interface AsyncCallBytes {
  readonly tenant: string;
  readonly bytes: number;
}

/** By tenant. It looks at every row. */
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

/** What a call takes on the disk until it is over. */
export function bytesOfEvent({ request, body }: Pick<AsyncCallTable, 'request' | 'body'>): number {
  return ROW_BYTES + Buffer.byteLength(request) + body.length;
}

/** And from then on. */
export function bytesOfEnd({ result, error }: Pick<AsyncCallTable, 'result' | 'error'>): number {
  return ROW_BYTES + Buffer.byteLength(result ?? '') + Buffer.byteLength(error ?? '');
}

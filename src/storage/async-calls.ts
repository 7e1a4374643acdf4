import { type Kysely, sql } from 'kysely';
import type { Database, Tables, WriteTransaction } from './database.ts';

export type AsyncCallStatus = 'queued' | 'processing' | 'completed' | 'failed';

/** Row of `async_calls`. */
export interface AsyncCallTable {
  id: string;
  tenant: string;
  urn: string;
  status: AsyncCallStatus;
  /** JSON: what the call asked for besides its body. */
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
}

type Queries = Pick<Kysely<Tables>, 'insertInto' | 'updateTable' | 'selectFrom' | 'deleteFrom'>;

export type AsyncCallAnswer = Omit<AsyncCallTable, 'body' | 'request' | 'webhook_url'>;

export async function insertAsyncCall(transaction: WriteTransaction, row: AsyncCallTable): Promise<void> {
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
export async function listQueuedAsyncCalls(database: Database) {
  return await database
    .selectFrom('async_calls')
    .select(['id', 'tenant', 'urn', 'created_at_ms'])
    .where('status', '=', 'queued')
    .orderBy('created_at_ms')
    .orderBy('id')
    .execute();
}

/** `queued` → `processing`; false when it is not queued any more. */
export async function claimAsyncCall(transaction: WriteTransaction, id: string): Promise<boolean> {
  const { numUpdatedRows } = await transaction
    .updateTable('async_calls')
    .set({ status: 'processing' })
    .where('id', '=', id)
    .where('status', '=', 'queued')
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

export async function finishAsyncCall(
  transaction: WriteTransaction,
  id: string,
  end: { status: 'completed' | 'failed'; result: string | null; error: string | null; completed_at_ms: number },
): Promise<void> {
  // The event is of no use any more, and may be large.
  await transaction
    .updateTable('async_calls')
    .set({ ...end, body: new Uint8Array(0) })
    .where('id', '=', id)
    .execute();
}

export async function failProcessingAsyncCalls(queries: Queries, error: string, nowMs: number): Promise<number> {
  const { numUpdatedRows } = await queries
    .updateTable('async_calls')
    .set({ status: 'failed', error, completed_at_ms: nowMs, body: new Uint8Array(0) })
    .where('status', '=', 'processing')
    .executeTakeFirstOrThrow();
  return Number(numUpdatedRows);
}

/** Ended calls whose webhook was not told yet (nor given up), oldest first. */
export async function listUntoldAsyncCalls(database: Database) {
  return await database
    .selectFrom('async_calls')
    .select(['id', 'webhook_url'])
    .where('completed_at_ms', 'is not', null)
    .where('webhook_url', '!=', '')
    .orderBy('completed_at_ms')
    .execute();
}

/** Its webhook was called, or given up: nobody needs the address any more. */
export async function forgetWebhook(database: Database, id: string): Promise<void> {
  await database.updateTable('async_calls').set({ webhook_url: '' }).where('id', '=', id).execute();
}

export async function deleteAsyncCallsCompletedBefore(database: Database, ms: number): Promise<void> {
  await database.deleteFrom('async_calls').where('completed_at_ms', '<', ms).execute();
}

/** When the oldest result was completed; null when there is none. */
export async function oldestCompletionMs(database: Database): Promise<number | null> {
  const row = await database
    .selectFrom('async_calls')
    .select(({ fn }) => fn.min('completed_at_ms').as('oldest'))
    .executeTakeFirst();
  return row?.oldest ?? null;
}

/** Bytes of events and results that are kept, by tenant. */
export async function sumAsyncCallBytes(database: Database): Promise<{ tenant: string; bytes: number }[]> {
  const rows = await database
    .selectFrom('async_calls')
    .select(['tenant', sql<number>`sum(length(body) + coalesce(length(result), 0))`.as('bytes')])
    .groupBy('tenant')
    .execute();
  return rows.map(({ tenant, bytes }) => ({ tenant, bytes: Number(bytes) }));
}

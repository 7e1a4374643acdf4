import { sql } from 'kysely';
import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { CallTable, NewCall } from '../schema.ts';

/** Rows per statement. Each count is a text of its own in the cache of statements, so there are few. */
const AT_ONCE = [50, 10, 1] as const;

/** Change of a tenant's total. */
interface Added {
  bytes: number;
  records: number;
}

/**
 * Stores calls. A later record of the same call replaces the earlier one: an asynchronous call may wait, be
 * refused and run again, and an alarm is delivered again if the service ends before its save. Numbers the
 * records of each tenant in the order of their commits.
 */
export async function insertCalls(transaction: WriteTransaction, rows: readonly NewCall[]): Promise<void> {
  const added = new Map<string, Added>();
  const addedTo = (tenant: string) => {
    const known = added.get(tenant) ?? { bytes: 0, records: 0 };
    added.set(tenant, known);
    return known;
  };
  for (const { tenant, bytes } of rows) {
    const sum = addedTo(tenant);
    sum.bytes += bytes;
    sum.records += 1;
  }
  for (const tenant of [...added.keys()].sort()) await alone(transaction, lockOf(tenant));
  for (const { tenant, bytes } of await dropKnown(transaction, rows)) addedTo(tenant).bytes -= Number(bytes);
  const numbers = await addTotals(transaction, added);
  for (const [tenant, { records }] of added) numbers.set(tenant, (numbers.get(tenant) ?? 0) - records);
  const numbered = rows.map(row => {
    const seq = (numbers.get(row.tenant) ?? 0) + 1;
    numbers.set(row.tenant, seq);
    return { ...row, seq };
  });
  let at = 0;
  while (at < numbered.length) {
    const count = AT_ONCE.find(each => each <= numbered.length - at) as number;
    await transaction
      .insertInto('calls')
      .values(numbered.slice(at, at + count))
      .execute();
    at += count;
  }
}

function lockOf(tenant: string): string {
  return `calls: ${tenant}`;
}

/** Deletes the records of calls that are recorded again. */
async function dropKnown(transaction: WriteTransaction, rows: readonly NewCall[]) {
  const ids = rows.filter(({ mode }) => mode === 'async' || mode === 'alarm').map(({ id }) => id);
  if (ids.length === 0) return [];
  return await transaction.deleteFrom('calls').where('id', 'in', ids).returning(['tenant', 'bytes']).execute();
}

/** Adds to the totals of tenants. Returns the number of the last record of each tenant. */
async function addTotals(
  transaction: WriteTransaction,
  added: ReadonlyMap<string, Added>,
): Promise<Map<string, number>> {
  const numbers = new Map<string, number>();
  for (const [tenant, { bytes, records }] of added) {
    const { last_seq: last } = await transaction
      .insertInto('call_totals')
      .values({ tenant, bytes, last_seq: records })
      .onConflict(conflict =>
        conflict.column('tenant').doUpdateSet({
          bytes: sql<number>`call_totals.bytes + excluded.bytes`,
          last_seq: sql<number>`call_totals.last_seq + excluded.last_seq`,
        }),
      )
      .returning('last_seq')
      .executeTakeFirstOrThrow();
    numbers.set(tenant, Number(last));
  }
  return numbers;
}

/**
 * Deletes up to `limit` of a tenant's oldest calls that started before `beforeMs`. While the tenant has more
 * than `maxBytes`, later ones too. Returns the number of deleted calls.
 */
export async function dropCalls(
  transaction: WriteTransaction,
  tenant: string,
  beforeMs: number,
  maxBytes: number,
  limit: number,
): Promise<number> {
  await alone(transaction, lockOf(tenant));
  const total = await transaction
    .selectFrom('call_totals')
    .select('bytes')
    .where('tenant', '=', tenant)
    .executeTakeFirst();
  let left = Number(total?.bytes ?? 0);
  const oldest = await transaction
    .selectFrom('calls')
    .select(['id', 'bytes', 'started_at_ms'])
    .where('tenant', '=', tenant)
    .orderBy('started_at_ms')
    .orderBy('id')
    .limit(limit)
    .execute();
  const dropped: string[] = [];
  for (const { id, bytes, started_at_ms } of oldest) {
    if (Number(started_at_ms) >= beforeMs && left <= maxBytes) break;
    dropped.push(id);
    left -= Number(bytes);
  }
  if (dropped.length === 0) return 0;
  const deleted = await transaction.deleteFrom('calls').where('id', 'in', dropped).returning('bytes').execute();
  const freed = deleted.reduce((sum, { bytes }) => sum + Number(bytes), 0);
  await addTotals(transaction, new Map([[tenant, { bytes: -freed, records: 0 }]]));
  return deleted.length;
}

/** Returns the tenants that have calls. */
export async function tenantsWithCalls(database: Database): Promise<string[]> {
  const rows = await database.selectFrom('call_totals').select('tenant').orderBy('tenant').execute();
  return rows.map(({ tenant }) => tenant);
}

/** A call with the id of the call that made it; null: none, or the history does not have that call. */
export type CallRecord = Omit<CallTable, 'parent' | 'seq'> & { readonly parent_id: string | null };

/** A call without its texts and spans. */
export type CallFacts = Omit<CallRecord, 'input' | 'output' | 'spans'>;

const FACTS = [
  ...['id', 'tenant', 'kind', 'subject', 'name', 'version', 'instance_id', 'node_id', 'mode', 'caller'],
  ...['trace_id', 'outcome', 'code', 'started_at_ms', 'elapsed_us', 'queue_us'],
  ...['place_us', 'start_us', 'load_us', 'run_us', 'input_bytes', 'output_bytes', 'bytes', 'error'],
] as Exclude<keyof CallFacts, 'parent_id'>[];

/**
 * The bounds make this a search in the primary key. The tenant is an expression, which has no index: SQLite
 * would walk through all calls of the tenant otherwise.
 */
const PARENT_ID = sql<string | null>`(select made.id from calls as made where made.tenant || '' = calls.tenant
  and made.id between calls.parent || '-0000-000000000000' and calls.parent || '-ffff-ffffffffffff' limit 1)`.as(
  'parent_id',
);

/** Position of a call in a list. */
export interface CallPlace {
  readonly startedAtMs: number;
  readonly id: string;
}

export interface CallFilter {
  readonly tenant: string;
  readonly kind?: CallTable['kind'] | undefined;
  readonly subject?: string | undefined;
  readonly outcome?: CallTable['outcome'] | undefined;
  /** Any of these. */
  readonly traceIds?: readonly string[] | undefined;
  /** The id of the call that made them. */
  readonly parentId?: string | undefined;
  /** Bounds of the start; the first is included. */
  readonly fromMs?: number | undefined;
  readonly beforeMs?: number | undefined;
  /** The last call of the page before; null: from the newest. */
  readonly after: CallPlace | null;
}

/** Characters of an id that `parent` has. */
const PARENT_CHARS = 18;

/** Numbers of records. */
interface SeqRange {
  readonly after: number;
  readonly last: number;
}

function matching(database: Database, filter: CallFilter, range: SeqRange | null = null) {
  const { tenant, kind, subject, outcome, traceIds, parentId, fromMs, beforeMs, after } = filter;
  // An expression has no index. So the database takes that of the trace or the parent, and for a range of
  // records that of their numbers. It would walk through all calls of the tenant or subject otherwise.
  const text = (column: 'tenant' | 'subject' | 'outcome' | 'trace_id' | 'parent', isIndexed: boolean) =>
    isIndexed ? sql<string>`${sql.ref(column)}` : sql<string>`${sql.ref(column)} || ''`;
  const isList = range === null;
  const hasOtherIndex = isList && (traceIds !== undefined || parentId !== undefined);
  const startedAtMs = isList ? sql<number>`started_at_ms` : sql<number>`started_at_ms + 0`;
  let query = database.selectFrom('calls').where(text('tenant', !hasOtherIndex), '=', tenant);
  // The first condition selects the index, which has only numbered records.
  if (range !== null)
    query = query.where(sql<boolean>`seq > 0`).where('seq', '>', range.after).where('seq', '<=', range.last);
  if (traceIds !== undefined) query = query.where(text('trace_id', isList), 'in', traceIds);
  // The second condition selects the index, which has only calls with a parent.
  if (parentId !== undefined) {
    query = query.where(text('parent', isList), '=', parentId.slice(0, PARENT_CHARS)).where(sql<boolean>`parent <> ''`);
  }
  if (subject !== undefined) query = query.where(text('subject', isList), '=', subject);
  if (kind !== undefined) query = query.where('kind', '=', kind);
  if (outcome !== undefined) query = query.where(text('outcome', isList), '=', outcome);
  if (fromMs !== undefined) query = query.where(startedAtMs, '>=', fromMs);
  if (beforeMs !== undefined) query = query.where(startedAtMs, '<', beforeMs);
  if (after === null) return query;
  // The first condition bounds the range of the index; an `or` alone would not.
  return query
    .where('started_at_ms', '<=', after.startedAtMs)
    .where(({ or, eb }) => or([eb('started_at_ms', '<', after.startedAtMs), eb('id', '<', after.id)]));
}

/** Returns calls, newest first. */
export async function listCalls(database: Database, filter: CallFilter, limit: number): Promise<CallFacts[]> {
  return await matching(database, filter)
    .select(FACTS)
    .select(PARENT_ID)
    .orderBy('started_at_ms', 'desc')
    .orderBy('id', 'desc')
    .limit(limit)
    .execute();
}

/** A part of a search. */
export interface SearchedCalls {
  readonly calls: readonly CallFacts[];
  /** The last call that was searched; null: all were. */
  readonly last: CallPlace | null;
}

/**
 * Searches inputs, outputs and errors of the next `window` calls for a text. Ignores the case of ASCII
 * letters. No index has these texts, so the caller repeats this with `last`.
 */
export async function searchCalls(
  database: Database,
  filter: CallFilter,
  text: string,
  window: number,
): Promise<SearchedCalls> {
  const [end] = await matching(database, filter)
    .select(['id', 'started_at_ms'])
    .orderBy('started_at_ms', 'desc')
    .orderBy('id', 'desc')
    .offset(window - 1)
    .limit(1)
    .execute();
  let query = matching(database, filter).select(FACTS).select(PARENT_ID).where(hasText(text));
  if (end !== undefined) {
    query = query
      .where('started_at_ms', '>=', end.started_at_ms)
      .where(({ or, eb }) => or([eb('started_at_ms', '>', end.started_at_ms), eb('id', '>=', end.id)]));
  }
  const calls = await query.orderBy('started_at_ms', 'desc').orderBy('id', 'desc').execute();
  const last = end === undefined ? null : { id: end.id, startedAtMs: end.started_at_ms };
  return { calls, last };
}

function hasText(text: string) {
  const pattern = `%${text.toLowerCase().replace(/[\\%_]/g, '\\$&')}%`;
  const has = (column: 'input' | 'output' | 'error') =>
    sql<boolean>`lower(${sql.ref(column)}) like ${pattern} escape '\\'`;
  return sql<boolean>`(${has('error')} or ${has('input')} or ${has('output')})`;
}

/** Returns the number of a tenant's last record; 0: none. */
export async function lastCallSeq(database: Database, tenant: string): Promise<number> {
  const row = await database
    .selectFrom('call_totals')
    .select('last_seq')
    .where('tenant', '=', tenant)
    .executeTakeFirst();
  return Number(row?.last_seq ?? 0);
}

/** Returns the matching calls among a range of records, in the order of their records. */
export async function listRecordedCalls(
  database: Database,
  filter: Omit<CallFilter, 'after'>,
  range: SeqRange,
  { text, limit }: { readonly text: string | undefined; readonly limit: number },
): Promise<(CallFacts & { readonly seq: number })[]> {
  const query = matching(database, { ...filter, after: null }, range);
  const rows = await (text === undefined ? query : query.where(hasText(text)))
    .select(FACTS)
    .select('seq')
    .select(PARENT_ID)
    .orderBy('seq')
    .limit(limit)
    .execute();
  return rows.map(row => ({ ...row, seq: Number(row.seq) }));
}

/** Returns a tenant's call with its texts; undefined when there is none. */
export async function findCall(database: Database, tenant: string, id: string): Promise<CallRecord | undefined> {
  return await database
    .selectFrom('calls')
    .selectAll()
    .select(PARENT_ID)
    .where('id', '=', id)
    .where('tenant', '=', tenant)
    .executeTakeFirst();
}

import type { Kysely } from 'kysely';
import { alone } from './alone.ts';
import type { Database, Tables, WriteTransaction } from './database.ts';
import { SUBMITS } from './jobs.ts';
import { type LackingSecret, lackingSecret } from './secrets.ts';

/** Row of `job_schedules`. */
export interface JobScheduleTable {
  tenant: string;
  id: string;
  cron: string;
  /** An IANA name. */
  timezone: string;
  /** What happens when a run is due while the one before goes on. */
  overlap: 'skip' | 'allow';
  /** JSON: the body of the submits. */
  submission: string;
  /** When it was written: what replaces one has a later moment, so that nobody submits what the one before asked for. */
  created_at_ms: number;
  /** Up to this moment it was decided what is submitted; none of it is decided again, on no node. */
  decided_until_ms: number;
}

type Queries = Pick<Kysely<Tables>, 'insertInto' | 'selectFrom' | 'deleteFrom'>;

/** `secrets`: those that its jobs name. `full`: the tenant has `most` already; `known`: it has one of this id. Then nothing is written. */
export async function insertJobSchedule(
  transaction: WriteTransaction,
  row: JobScheduleTable,
  secrets: readonly string[],
  most: number,
): Promise<'inserted' | 'full' | 'known' | LackingSecret> {
  await alone(transaction, SUBMITS);
  if ((await countJobSchedules(transaction, row.tenant)) >= most) return 'full';
  const lacking = await lackingSecret(transaction, row.tenant, secrets);
  if (lacking !== null) return { lacking };
  const { numInsertedOrUpdatedRows } = await transaction
    .insertInto('job_schedules')
    .values(row)
    .onConflict(conflict => conflict.doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n ? 'inserted' : 'known';
}

/**
 * Written anew, or over the one of this id. `full`: the tenant has `most` others; then, and where a secret is lacking, nothing is written. Where
 * pattern and time zone stay, so does the moment up to which it is decided: what was due and has no job yet gets one of the new schedule.
 */
export async function putJobSchedule(
  transaction: WriteTransaction,
  row: JobScheduleTable,
  secrets: readonly string[],
  most: number,
): Promise<JobScheduleTable | 'full' | LackingSecret> {
  await alone(transaction, SUBMITS);
  const before = await findJobSchedule(transaction, row.tenant, row.id);
  if (before === undefined && (await countJobSchedules(transaction, row.tenant)) >= most) return 'full';
  const lacking = await lackingSecret(transaction, row.tenant, secrets);
  if (lacking !== null) return { lacking };
  const written = before === undefined ? row : { ...row, ...after(before, row) };
  const { tenant: _tenant, id: _id, ...changed } = written;
  await transaction
    .insertInto('job_schedules')
    .values(written)
    .onConflict(conflict => conflict.columns(['tenant', 'id']).doUpdateSet(changed))
    .execute();
  return written;
}

/** The moments of what replaces `before`. */
function after(
  before: JobScheduleTable,
  row: JobScheduleTable,
): Pick<JobScheduleTable, 'created_at_ms' | 'decided_until_ms'> {
  const isSameClock = before.cron === row.cron && before.timezone === row.timezone;
  return {
    created_at_ms: Math.max(row.created_at_ms, before.created_at_ms + 1),
    decided_until_ms: isSameClock ? before.decided_until_ms : Math.max(row.decided_until_ms, before.decided_until_ms),
  };
}

export async function findJobSchedule(
  queries: Queries,
  tenant: string,
  id: string,
): Promise<JobScheduleTable | undefined> {
  return await queries
    .selectFrom('job_schedules')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirst();
}

/** Of one tenant, or of all (`null`), by id. */
export async function listJobSchedules(database: Database, tenant: string | null): Promise<JobScheduleTable[]> {
  const query = database.selectFrom('job_schedules').selectAll().orderBy('tenant').orderBy('id');
  return await (tenant === null ? query : query.where('tenant', '=', tenant)).execute();
}

/** Which schedules there are, of all tenants: who has read one need not read it again, since what replaces one has another moment. */
export async function listJobScheduleKeys(
  database: Database,
): Promise<readonly Pick<JobScheduleTable, 'tenant' | 'id' | 'created_at_ms'>[]> {
  return await database.selectFrom('job_schedules').select(['tenant', 'id', 'created_at_ms']).execute();
}

async function countJobSchedules(queries: Queries, tenant: string): Promise<number> {
  const { count } = await queries
    .selectFrom('job_schedules')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('tenant', '=', tenant)
    .executeTakeFirstOrThrow();
  return Number(count);
}

/** False when there was none. */
export async function deleteJobSchedule(transaction: WriteTransaction, tenant: string, id: string): Promise<boolean> {
  const { numDeletedRows } = await transaction
    .deleteFrom('job_schedules')
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}

import type { Kysely } from 'kysely';
import { isFromWrongClock } from '../../lib/stored-time.ts';
import { alone } from '../alone.ts';
import type { Database, Tables, WriteTransaction } from '../database.ts';
import type { JobScheduleTable } from '../schema.ts';
import { SUBMITS } from './jobs.ts';
import { type LackingSecret, lackingSecret } from './secrets.ts';

type ScheduleQueries = Pick<Kysely<Tables>, 'insertInto' | 'selectFrom' | 'deleteFrom'>;

/**
 * Inserts a schedule. `secrets`: the secrets that its jobs use. Writes nothing when the tenant has `most`
 * schedules (`full`) or one with this id (`known`), or when a secret is missing.
 */
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
 * Creates or replaces a schedule. Writes nothing when the tenant has `most` others (`full`) or a secret is
 * missing. If pattern and time zone stay, so does `decided_until_ms`: a due moment without a job gets one of
 * the new schedule.
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

/** Returns the times of a schedule that replaces `before`. */
function after(
  before: JobScheduleTable,
  row: JobScheduleTable,
): Pick<JobScheduleTable, 'created_at_ms' | 'decided_until_ms'> {
  const isSamePattern = before.cron === row.cron && before.timezone === row.timezone;
  const decidedMs = isFromWrongClock(before.decided_until_ms, row.decided_until_ms) ? 0 : before.decided_until_ms;
  return {
    created_at_ms: Math.max(row.created_at_ms, before.created_at_ms + 1),
    decided_until_ms: isSamePattern && decidedMs > 0 ? decidedMs : Math.max(row.decided_until_ms, decidedMs),
  };
}

export async function findJobSchedule(
  queries: ScheduleQueries,
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

/** Returns the schedules of a tenant, or of all (`null`), ordered by id. */
export async function listJobSchedules(database: Database, tenant: string | null): Promise<JobScheduleTable[]> {
  const query = database.selectFrom('job_schedules').selectAll().orderBy('tenant').orderBy('id');
  return await (tenant === null ? query : query.where('tenant', '=', tenant)).execute();
}

/**
 * Returns the keys of all tenants' schedules. A reader can skip known keys, since a replacement has a
 * different `created_at_ms`.
 */
export async function listJobScheduleKeys(
  database: Database,
): Promise<readonly Pick<JobScheduleTable, 'tenant' | 'id' | 'created_at_ms'>[]> {
  return await database.selectFrom('job_schedules').select(['tenant', 'id', 'created_at_ms']).execute();
}

async function countJobSchedules(queries: ScheduleQueries, tenant: string): Promise<number> {
  const { count } = await queries
    .selectFrom('job_schedules')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('tenant', '=', tenant)
    .executeTakeFirstOrThrow();
  return Number(count);
}

/** Deletes a schedule. Returns false when it does not exist. */
export async function deleteJobSchedule(transaction: WriteTransaction, tenant: string, id: string): Promise<boolean> {
  const { numDeletedRows } = await transaction
    .deleteFrom('job_schedules')
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}

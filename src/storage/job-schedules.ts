import type { Kysely } from 'kysely';
import { alone } from './alone.ts';
import type { Database, Tables, WriteTransaction } from './database.ts';
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
  await alone(transaction, `job schedules: ${row.tenant}`);
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

/** Which schedules there are, of all tenants: who has read one need not read it again, since none is changed. */
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

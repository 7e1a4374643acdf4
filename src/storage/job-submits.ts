import { sql } from 'kysely';
import type { Job } from '../core/job.ts';
import type { LeaseFence } from '../core/lease.ts';
import { secretsOf } from '../core/secret.ts';
import { alone } from './alone.ts';
import type { WriteTransaction } from './database.ts';
import { publish } from './feed.ts';
import { findJob, SUBMITS, TOPIC_JOBS } from './jobs.ts';
import { fence } from './leases.ts';
import { type LackingSecret, lackingSecret } from './secrets.ts';

/** How many jobs may be open: of all tenants and of one. */
export interface OpenBounds {
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
}

/** A job that has no place in the order of submits yet. */
export interface JobDraft extends Omit<Job, 'sequence'> {
  readonly nodeEpoch: number;
  /** It is for another node than the one that writes it. */
  readonly isForAnother: boolean;
}

/** `known`: the tenant has a job of this id. `full`: too many are open. Then nothing is written. */
export type Submitted = { readonly sequence: number } | 'known' | 'full' | LackingSecret;

/** What a schedule submits, and for which of its moments. */
export interface ScheduledSubmit {
  readonly scheduleId: string;
  /** Of the schedule: one that was deleted and made anew is another one. */
  readonly createdAtMs: number;
  readonly atMs: number;
  /** Nothing is submitted while a job is open whose id is this and a moment; null: it is submitted all the same. */
  readonly unlessOpen: string | null;
}

const MICROS = 1000;
/** A moment as the ids of scheduled jobs end with it, as a pattern of `LIKE`. */
const MOMENT = '________T______Z';

/**
 * Puts a job into the order of submits, which is that of the commits, whatever the clocks of the nodes say. Two submits of one moment are two
 * jobs; of two with one id the first one counts.
 */
export async function insertJob(
  transaction: WriteTransaction,
  job: JobDraft,
  fingerprint: string,
  bounds: OpenBounds,
): Promise<Submitted> {
  await alone(transaction, SUBMITS);
  const lacking = await lackingSecret(transaction, job.tenant, secretsOf(job.spec.runtimeEnv.envVars));
  if (lacking !== null || (await isFull(transaction, job.tenant, bounds))) {
    // A submit that is repeated needs no room, and no secrets.
    if ((await findJob(transaction, job.tenant, job.id)) !== null) return 'known';
    return lacking === null ? 'full' : { lacking };
  }
  const { greatest } = await transaction
    .selectFrom('jobs')
    .select(({ fn }) => fn.max('sequence').as('greatest'))
    .executeTakeFirstOrThrow();
  const sequence = Math.max(Number(greatest ?? 0) + 1, job.submittedAtMs * MICROS);
  const { numInsertedOrUpdatedRows } = await transaction
    .insertInto('jobs')
    .values({
      sequence,
      tenant: job.tenant,
      id: job.id,
      fingerprint,
      node_id: job.nodeId,
      node_epoch: job.nodeEpoch,
      spec: JSON.stringify(job.spec),
      status: job.status,
      message: job.message,
      error_type: job.errorType,
      exit_code: job.exitCode,
      attempt: job.attempt,
      not_before_ms: 0,
      instance_id: '',
      pid: '',
      stop_reason: '',
      submitted_at_ms: job.submittedAtMs,
      started_at_ms: null,
      ended_at_ms: null,
    })
    .onConflict(conflict => conflict.columns(['tenant', 'id']).doNothing())
    .executeTakeFirst();
  if (numInsertedOrUpdatedRows !== 1n) return 'known';
  if (job.isForAnother) await publish(transaction, TOPIC_JOBS, job.nodeId);
  return { sequence };
}

/**
 * Decides one moment of a schedule, once over all nodes and for good: `decided` when that was done before, or the schedule is gone;
 * `skipped` when the job before it is not over. Fails with `unavailable` when the lease is not held any more.
 */
export async function insertScheduledJob(
  transaction: WriteTransaction,
  held: LeaseFence | null,
  { scheduleId, createdAtMs, atMs, unlessOpen }: ScheduledSubmit,
  job: JobDraft,
  fingerprint: string,
  bounds: OpenBounds,
): Promise<Submitted | 'decided' | 'skipped'> {
  await fence(transaction, held);
  await alone(transaction, SUBMITS);
  const { numUpdatedRows } = await transaction
    .updateTable('job_schedules')
    .set({ decided_until_ms: atMs })
    .where('tenant', '=', job.tenant)
    .where('id', '=', scheduleId)
    .where('created_at_ms', '=', createdAtMs)
    .where('decided_until_ms', '<', atMs)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows !== 1n) return 'decided';
  if (unlessOpen !== null && (await isOpen(transaction, job.tenant, unlessOpen))) return 'skipped';
  return await insertJob(transaction, job, fingerprint, bounds);
}

async function isFull(transaction: WriteTransaction, tenant: string, bounds: OpenBounds): Promise<boolean> {
  const rows = await transaction
    .selectFrom('jobs')
    .select(({ fn }) => ['tenant', fn.countAll<number>().as('count')])
    .where('ended_at_ms', 'is', null)
    .groupBy('tenant')
    .execute();
  const all = rows.reduce((sum, { count }) => sum + Number(count), 0);
  const own = Number(rows.find(row => row.tenant === tenant)?.count ?? 0);
  return all >= bounds.maxOpen || own >= bounds.maxOpenPerTenant;
}

/** The ids of other schedules, and of jobs that callers named, may begin with the same letters. */
async function isOpen(transaction: WriteTransaction, tenant: string, prefix: string): Promise<boolean> {
  const found = await transaction
    .selectFrom('jobs')
    .select('sequence')
    .where('ended_at_ms', 'is', null)
    .where('tenant', '=', tenant)
    .where(sql<string>`substr(id, 1, ${sql.lit(prefix.length)})`, '=', prefix)
    .where(sql<string>`substr(id, ${sql.lit(prefix.length + 1)})`, 'like', MOMENT)
    .limit(1)
    .executeTakeFirst();
  return found !== undefined;
}

import { sql } from 'kysely';
import type { Job } from '../../core/job.ts';
import type { LeaseFence } from '../../core/lease.ts';
import { secretsOf } from '../../core/secret.ts';
import { MAX_CLOCK_SKEW_MS } from '../../lib/stored-time.ts';
import { alone } from '../alone.ts';
import type { WriteTransaction } from '../database.ts';
import { publish } from './feed.ts';
import { findJob, SUBMITS, TOPIC_JOBS } from './jobs.ts';
import { fence } from './leases.ts';
import { type LackingSecret, lackingSecret } from './secrets.ts';

/** The maximum number of open jobs, of all tenants and per tenant. */
export interface OpenBounds {
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
}

/** A job without a position in the order of submits. */
export interface JobDraft extends Omit<Job, 'sequence'> {
  readonly nodeEpoch: number;
  /** The job is for another node than the one that writes it. */
  readonly isForAnother: boolean;
}

/**
 * Result of a submit. `known`: the tenant has a job of this id. `full`: too many jobs are open. In these
 * cases nothing was written.
 */
export type Submitted = { readonly sequence: number } | 'known' | 'full' | LackingSecret;

/** A submit by a schedule for one of its moments. */
export interface ScheduledSubmit {
  readonly scheduleId: string;
  /** Identifies the schedule: a deleted and recreated one has another value. */
  readonly createdAtMs: number;
  readonly atMs: number;
  /**
   * Prefix of job ids: skips the submit while a job with this prefix and a moment is open. null: submits
   * always.
   */
  readonly unlessOpen: string | null;
}

const MICROS = 1000;
/** The end of the ids of scheduled jobs, as a `LIKE` pattern. */
const MOMENT = '________T______Z';

/**
 * Appends a job to the order of submits, which is commit order, independent of the nodes' clocks. Two submits
 * at the same moment make two jobs; of two submits with the same id, the first one counts.
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
    // A repeated submit needs no free capacity and no secrets.
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
 * Decides one moment of a schedule, once for all nodes. Returns `decided` when it was decided before or the
 * schedule does not exist, and `skipped` when a previous job is open. Fails with `unavailable` when the lease
 * is lost.
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
    // A value far ahead was written while the clock was wrong. The id of the job prevents a second job for
    // the same moment.
    .where(({ eb, or }) =>
      or([eb('decided_until_ms', '<', atMs), eb('decided_until_ms', '>', atMs + MAX_CLOCK_SKEW_MS)]),
    )
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

/**
 * Returns true when a job of the schedule is open. Compares the moment too, since ids of other schedules and
 * jobs may have the same prefix.
 */
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

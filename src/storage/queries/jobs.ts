import type { Kysely, Selectable } from 'kysely';
import type { Job, JobErrorType, JobSpec } from '../../core/job.ts';
import { alone } from '../alone.ts';
import type { Database, Tables, WriteTransaction } from '../database.ts';
import type { JobTable, StopReason } from '../schema.ts';
import { publish } from './feed.ts';
import { insertInstance, type StoredInstance } from './instances.ts';

/** Feed topic: a node has work about jobs. The key is the node; null: all nodes. */
export const TOPIC_JOBS = 'jobs';

export interface StoredJob {
  readonly job: Job;
  readonly fingerprint: string;
  readonly notBeforeMs: number;
  readonly stopReason: StopReason;
  readonly isLogStored: boolean;
}

/** The writer of a change to a job: the job's required node and the epoch of its process. */
export interface JobOwner {
  readonly nodeId: string;
  readonly epoch: number;
}

export interface JobEnd {
  readonly status: 'STOPPED' | 'SUCCEEDED' | 'FAILED';
  readonly message: string;
  readonly errorType: JobErrorType;
  readonly exitCode: number | null;
  readonly endedAtMs: number;
}

type JobQueries = Pick<Kysely<Tables>, 'insertInto' | 'updateTable' | 'selectFrom' | 'deleteFrom'>;

/** Lock of submits: they are ordered and counted against their limits one after the other. */
export const SUBMITS = 'jobs: submits';

/** Blocks other write operations about the job and its instance until the transaction ends. */
export async function aloneWithJob(transaction: WriteTransaction, sequence: number): Promise<void> {
  await alone(transaction, `job ${sequence}`);
}

export async function findJob(queries: JobQueries, tenant: string, id: string): Promise<StoredJob | null> {
  const row = await queries
    .selectFrom('jobs')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirst();
  return row ? toStored(row) : null;
}

export async function readJob(queries: JobQueries, sequence: number): Promise<StoredJob | null> {
  const row = await queries.selectFrom('jobs').selectAll().where('sequence', '=', sequence).executeTakeFirst();
  return row ? toStored(row) : null;
}

/** Returns a page of jobs with sequences below `before`, newest first. */
export async function listJobs(
  database: Database,
  tenant: string,
  page: { readonly before: number; readonly limit: number },
): Promise<Job[]> {
  const rows = await database
    .selectFrom('jobs')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('sequence', '<', page.before)
    .orderBy('sequence', 'desc')
    .limit(page.limit)
    .execute();
  return rows.map(row => toStored(row).job);
}

/** Returns the open jobs of a node, or of all (null), oldest first. */
export async function listOpenJobs(database: Database, nodeId: string | null): Promise<StoredJob[]> {
  const query = database.selectFrom('jobs').selectAll().where('status', 'in', ['PENDING', 'RUNNING']);
  const rows = await (nodeId === null ? query : query.where('node_id', '=', nodeId)).orderBy('sequence').execute();
  return rows.map(toStored);
}

/** Returns how many open jobs of a node have a sandbox (`running`) and how many have none (`waiting`). */
export async function countOpenJobs(
  database: Database,
  nodeId: string,
): Promise<{ readonly running: number; readonly waiting: number }> {
  const rows = await database
    .selectFrom('jobs')
    .select(({ fn, eb }) => [eb('instance_id', '=', '').as('waits'), fn.countAll<number>().as('count')])
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .where('node_id', '=', nodeId)
    .groupBy('waits')
    .execute();
  const countOf = (waits: boolean) => Number(rows.find(row => Boolean(row.waits) === waits)?.count ?? 0);
  return { running: countOf(false), waiting: countOf(true) };
}

/**
 * Marks a waiting job as starting in this instance, and stores the instance. Returns false when the job no
 * longer waits or has another node. Of concurrent callers only one succeeds.
 */
export async function claimJob(
  transaction: WriteTransaction,
  sequence: number,
  owner: JobOwner,
  instance: StoredInstance,
): Promise<boolean> {
  await aloneWithJob(transaction, sequence);
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({ instance_id: instance.id, node_epoch: owner.epoch })
    .where('sequence', '=', sequence)
    .where('node_id', '=', owner.nodeId)
    .where('status', '=', 'PENDING')
    // A retry with the same instance succeeds: the answer of the first try was lost.
    .where('instance_id', 'in', ['', instance.id])
    .executeTakeFirstOrThrow();
  if (numUpdatedRows !== 1n) return false;
  await insertInstance(transaction, instance);
  return true;
}

/**
 * Marks a job as RUNNING; also true when it was marked before. Returns false when the job is not starting in
 * this sandbox, or has ended.
 */
export async function markJobRunning(
  queries: JobQueries,
  sequence: number,
  running: {
    readonly instanceId: string;
    readonly pid: string;
    readonly message: string;
    readonly startedAtMs: number;
  },
): Promise<boolean> {
  const { numUpdatedRows } = await queries
    .updateTable('jobs')
    .set({
      status: 'RUNNING',
      pid: running.pid,
      message: running.message,
      started_at_ms: running.startedAtMs,
    })
    .where('sequence', '=', sequence)
    .where('instance_id', '=', running.instanceId)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/** Records why an open job is asked to end. The first reason stays. */
export async function setJobStopReason(
  transaction: WriteTransaction,
  sequence: number,
  reason: StopReason,
): Promise<void> {
  await aloneWithJob(transaction, sequence);
  await transaction
    .updateTable('jobs')
    .set({ stop_reason: reason })
    .where('sequence', '=', sequence)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .where('stop_reason', '=', '')
    .execute();
}

/** Ends a job. Returns false and changes no job when it had ended already or has another node. */
export async function finishJob(
  transaction: WriteTransaction,
  sequence: number,
  nodeId: string,
  end: JobEnd,
): Promise<boolean> {
  await aloneWithJob(transaction, sequence);
  await endInstanceOf(transaction, sequence, nodeId);
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({
      status: end.status,
      message: end.message,
      error_type: end.errorType,
      exit_code: end.exitCode,
      ended_at_ms: end.endedAtMs,
    })
    .where('sequence', '=', sequence)
    .where('node_id', '=', nodeId)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/**
 * Ends a waiting job, or records the request to end a job with a sandbox. Returns true when the job was
 * waiting and has ended. `nodeId` is the calling node; when another node has the job, that node is notified.
 */
export async function stopJob(
  transaction: WriteTransaction,
  sequence: number,
  nodeId: string,
  end: JobEnd,
): Promise<boolean> {
  await aloneWithJob(transaction, sequence);
  const stored = await readJob(transaction, sequence);
  if (stored === null) return false;
  const { job } = stored;
  const waits = job.status === 'PENDING' && job.instanceId === '';
  const hasWaited = waits && (await finishJob(transaction, sequence, job.nodeId, end));
  if (!hasWaited) await setJobStopReason(transaction, sequence, 'stopped');
  if (job.nodeId !== '' && job.nodeId !== nodeId) await publish(transaction, TOPIC_JOBS, job.nodeId);
  return hasWaited;
}

/**
 * Result of `requeueJob`. `stopped`: the job was asked to end, and has ended. `lost`: nothing was written,
 * since the job had ended or has another node.
 */
export type Requeued = 'waits' | 'stopped' | 'lost';

/**
 * Returns a job without a running sandbox to the queue. If the job was asked to end meanwhile, it ends with
 * `stopped` instead. A recorded timeout of the previous run is cleared.
 */
export async function requeueJob(
  transaction: WriteTransaction,
  sequence: number,
  nodeId: string,
  again: { readonly attempt: number; readonly notBeforeMs: number; readonly message: string },
  stopped: JobEnd,
): Promise<Requeued> {
  await aloneWithJob(transaction, sequence);
  const stored = await readJob(transaction, sequence);
  if (stored?.stopReason === 'stopped') {
    return (await finishJob(transaction, sequence, nodeId, stopped)) ? 'stopped' : 'lost';
  }
  await endInstanceOf(transaction, sequence, nodeId);
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({
      status: 'PENDING',
      attempt: again.attempt,
      not_before_ms: again.notBeforeMs,
      message: again.message,
      instance_id: '',
      pid: '',
      stop_reason: '',
      started_at_ms: null,
    })
    .where('sequence', '=', sequence)
    .where('node_id', '=', nodeId)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n ? 'waits' : 'lost';
}

/** Marks the open job's instance as STOPPING, so that the next reconciler pass removes it. */
async function endInstanceOf(transaction: WriteTransaction, sequence: number, nodeId: string): Promise<void> {
  await transaction
    .updateTable('instances')
    .set({ status: 'STOPPING' })
    .where('owner_kind', '=', 'job')
    .where('id', '=', ({ selectFrom }) =>
      selectFrom('jobs')
        .select('instance_id')
        .where('sequence', '=', sequence)
        .where('node_id', '=', nodeId)
        .where('status', 'in', ['PENDING', 'RUNNING']),
    )
    .execute();
}

/** Deletes an ended job. Returns false when the job does not exist or has not ended. */
export async function deleteJob(transaction: WriteTransaction, sequence: number): Promise<boolean> {
  await alone(transaction, SUBMITS);
  await aloneWithJob(transaction, sequence);
  const { numDeletedRows } = await transaction
    .deleteFrom('jobs')
    .where('sequence', '=', sequence)
    .where('status', 'not in', ['PENDING', 'RUNNING'])
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}

/**
 * Returns ended jobs that are too old or too many, at most `limit`. Among too many, those with the most newer
 * jobs of their tenant come first, then the oldest. A tenant with many jobs therefore displaces its own.
 */
export async function listExpiredJobs(
  database: Database,
  bounds: { readonly endedBeforeMs: number; readonly keep: number; readonly limit: number },
): Promise<readonly number[]> {
  const old = await database
    .selectFrom('jobs')
    .select('sequence')
    .where('ended_at_ms', '<', bounds.endedBeforeMs)
    .orderBy('ended_at_ms')
    .limit(bounds.limit)
    .execute();
  const expired = old.map(({ sequence }) => sequence);
  const ended = database.selectFrom('jobs').where('ended_at_ms', '>=', bounds.endedBeforeMs);
  const { count } = await ended.select(({ fn }) => fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  const tooMany = Math.min(Number(count) - bounds.keep, bounds.limit - expired.length);
  if (tooMany <= 0) return expired;
  const placed = ended.select(({ fn }) => [
    'sequence',
    'ended_at_ms',
    fn
      .agg<number>('row_number')
      .over(over => over.partitionBy('tenant').orderBy('ended_at_ms', 'desc').orderBy('sequence', 'desc'))
      .as('place'),
  ]);
  const rows = await database
    .selectFrom(placed.as('placed'))
    .select('sequence')
    .orderBy('place', 'desc')
    .orderBy('ended_at_ms')
    .orderBy('sequence')
    .limit(tooMany)
    .execute();
  return [...expired, ...rows.map(({ sequence }) => sequence)];
}

/** Returns those of `sequences` that still exist. */
export async function knownJobSequences(
  database: Database,
  sequences: readonly number[],
): Promise<ReadonlySet<number>> {
  const known = new Set<number>();
  for (let at = 0; at < sequences.length; at += SOME) {
    const some = sequences.slice(at, at + SOME);
    const rows = await database.selectFrom('jobs').select('sequence').where('sequence', 'in', some).execute();
    for (const { sequence } of rows) known.add(sequence);
  }
  return known;
}

/** Most values in one query. SQLite allows 32 766, but that many are no faster. */
const SOME = 1000;

export function toStored(row: Selectable<JobTable>): StoredJob {
  const job: Job = {
    sequence: row.sequence,
    tenant: row.tenant,
    id: row.id,
    spec: JSON.parse(row.spec) as JobSpec,
    status: row.status,
    message: row.message,
    errorType: row.error_type,
    exitCode: row.exit_code,
    attempt: row.attempt,
    nodeId: row.node_id,
    instanceId: row.instance_id,
    pid: row.pid,
    submittedAtMs: row.submitted_at_ms,
    startedAtMs: row.started_at_ms,
    endedAtMs: row.ended_at_ms,
  };
  return {
    job,
    fingerprint: row.fingerprint,
    notBeforeMs: row.not_before_ms,
    stopReason: row.stop_reason,
    isLogStored: row.is_log_stored === 1,
  };
}

import type { Generated, Kysely, Selectable } from 'kysely';
import type { Job, JobErrorType, JobSpec, JobStatus } from '../core/job.ts';
import { alone } from './alone.ts';
import type { Database, Tables, WriteTransaction } from './database.ts';
import { publish } from './feed.ts';
import { insertInstance, type StoredInstance } from './instances.ts';

/** The topic of the feed that tells a node (the key; null: all) that there is something to do about jobs. */
export const TOPIC_JOBS = 'jobs';

/** Why a running job was asked to end; `''`: it was not. */
export type StopReason = '' | 'stopped' | 'timeout';

/**
 * Row of `jobs`. PENDING without `instance_id`: it waits, nothing of it runs. PENDING with one: it is being started, and only its sandbox
 * can tell whether it has begun.
 */
export interface JobTable {
  sequence: number;
  tenant: string;
  id: string;
  fingerprint: string;
  /** Who runs it, or will; `''`: nobody yet, after its node was lost (`job-owners.ts`). */
  node_id: string;
  /** Which process of that node; an older process must not act on the job. */
  node_epoch: Generated<number>;
  /** `JobSpec` */
  spec: string;
  status: JobStatus;
  message: string;
  error_type: JobErrorType;
  exit_code: number | null;
  attempt: number;
  /** It does not start before this moment; 0: at once. */
  not_before_ms: number;
  instance_id: string;
  pid: string;
  stop_reason: StopReason;
  submitted_at_ms: number;
  started_at_ms: number | null;
  /** null exactly while it is not over. */
  ended_at_ms: number | null;
  /** 1: the whole log of a job that is over is in the object store. */
  is_log_stored: Generated<number>;
}

export interface StoredJob {
  readonly job: Job;
  readonly fingerprint: string;
  readonly notBeforeMs: number;
  readonly stopReason: StopReason;
  readonly isLogStored: boolean;
}

/** Who writes about a job: the node that it must have, with the epoch of the process that writes. */
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

type Queries = Pick<Kysely<Tables>, 'insertInto' | 'updateTable' | 'selectFrom' | 'deleteFrom'>;

/** Submits are ordered, and counted against their bounds, one after the other. */
export const SUBMITS = 'jobs: submits';

/** No other write operation about the job and its instance runs until the transaction ends. */
export async function aloneWithJob(transaction: WriteTransaction, sequence: number): Promise<void> {
  await alone(transaction, `job ${sequence}`);
}

export async function findJob(queries: Queries, tenant: string, id: string): Promise<StoredJob | null> {
  const row = await queries
    .selectFrom('jobs')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirst();
  return row ? toStored(row) : null;
}

export async function readJob(queries: Queries, sequence: number): Promise<StoredJob | null> {
  const row = await queries.selectFrom('jobs').selectAll().where('sequence', '=', sequence).executeTakeFirst();
  return row ? toStored(row) : null;
}

/** The newest first, from below `before` on. */
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

/** Those of one node, or of all (null), that are not over, the oldest first. */
export async function listOpenJobs(database: Database, nodeId: string | null): Promise<StoredJob[]> {
  const query = database.selectFrom('jobs').selectAll().where('status', 'in', ['PENDING', 'RUNNING']);
  const rows = await (nodeId === null ? query : query.where('node_id', '=', nodeId)).orderBy('sequence').execute();
  return rows.map(toStored);
}

/** How many of this node are not over: those that have a sandbox, and those of which nothing runs. */
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
 * Marks a waiting job as being started in this instance, which is written with it; false when it does not wait any more, or not for this
 * node: of all that try, one starts it.
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
    // Its own: it was asked before, and the answer was lost.
    .where('instance_id', 'in', ['', instance.id])
    .executeTakeFirstOrThrow();
  if (numUpdatedRows !== 1n) return false;
  await insertInstance(transaction, instance);
  return true;
}

/** It runs. True also when it was written before; false when it is not being started in this sandbox, or is over. */
export async function markJobRunning(
  queries: Queries,
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

/** Keeps why an open job is asked to end; the first reason stays. */
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

/** False, and nothing written, when it was over already, or is not this node's any more. */
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
 * Ends a job that waits, or records the wish to end one that has a sandbox. True: it waited, so that it is over. `nodeId` is the node that
 * asks; when another node has the job, that node gets a message.
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

/** `stopped`: it was asked to end, and is over. `lost`: nothing was written, since it was over, or is not this node's any more. */
export type Requeued = 'waits' | 'stopped' | 'lost';

/**
 * Back to the queue: nothing of it runs. One that was asked to end meanwhile does not wait for its next run: it ends with `stopped`. That it
 * ran longer than it may is forgotten: that was the run before.
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

/** The open job needs its instance no longer: the next look at it removes it. */
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

/** False when it is not there, or not over. */
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
 * Ended jobs that are too old or too many, at most `limit` of them. Of too many those go of which the most newer ones of their tenant are kept,
 * so that a tenant with many pushes out its own; the oldest first.
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

/** Of these, the ones that are still known. */
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

/** Values of one query: SQLite takes 32 766, and a plan for so many is no better. */
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

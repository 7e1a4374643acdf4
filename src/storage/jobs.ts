import type { Kysely } from 'kysely';
import type { Job, JobErrorType, JobSpec, JobStatus } from '../core/job.ts';
import type { Database, Tables, WriteTransaction } from './database.ts';
import { insertInstance, type StoredInstance } from './instances.ts';

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
  node_id: string;
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
  ended_at_ms: number | null;
}

export interface StoredJob {
  readonly job: Job;
  readonly fingerprint: string;
  readonly notBeforeMs: number;
  readonly stopReason: StopReason;
}

export interface JobEnd {
  readonly status: 'STOPPED' | 'SUCCEEDED' | 'FAILED';
  readonly message: string;
  readonly errorType: JobErrorType;
  readonly exitCode: number | null;
  readonly endedAtMs: number;
}

type Queries = Pick<Kysely<Tables>, 'insertInto' | 'updateTable' | 'selectFrom' | 'deleteFrom'>;

/** False, and nothing written, when the tenant has a job of this id. */
export async function insertJob(transaction: WriteTransaction, job: Job, fingerprint: string): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await transaction
    .insertInto('jobs')
    .values({
      sequence: job.sequence,
      tenant: job.tenant,
      id: job.id,
      fingerprint,
      node_id: job.nodeId,
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
    .onConflict(conflict => conflict.doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
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

/** Those of this node that are not over, the oldest first. */
export async function listOpenJobs(database: Database, nodeId: string): Promise<StoredJob[]> {
  const rows = await database
    .selectFrom('jobs')
    .selectAll()
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .where('node_id', '=', nodeId)
    .orderBy('sequence')
    .execute();
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

export async function greatestJobSequence(database: Database): Promise<number> {
  const row = await database
    .selectFrom('jobs')
    .select(({ fn }) => fn.max('sequence').as('greatest'))
    .executeTakeFirst();
  return Number(row?.greatest ?? 0);
}

/** Marks a waiting job as being started in this instance, which is written with it; false when it does not wait any more. */
export async function claimJob(
  transaction: WriteTransaction,
  sequence: number,
  instance: StoredInstance,
): Promise<boolean> {
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({ instance_id: instance.id })
    .where('sequence', '=', sequence)
    .where('status', '=', 'PENDING')
    // Its own: it was asked before, and the answer was lost.
    .where('instance_id', 'in', ['', instance.id])
    .executeTakeFirstOrThrow();
  if (numUpdatedRows !== 1n) return false;
  await insertInstance(transaction, instance);
  return true;
}

/** It runs. False when it is not being started in this sandbox. */
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
    .where('status', '=', 'PENDING')
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/** Keeps why an open job is asked to end; the first reason stays. */
export async function setJobStopReason(
  transaction: WriteTransaction,
  sequence: number,
  reason: StopReason,
): Promise<void> {
  await transaction
    .updateTable('jobs')
    .set({ stop_reason: reason })
    .where('sequence', '=', sequence)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .where('stop_reason', '=', '')
    .execute();
}

/** False, and nothing written, when it was over already. */
export async function finishJob(transaction: WriteTransaction, sequence: number, end: JobEnd): Promise<boolean> {
  await endInstanceOf(transaction, sequence);
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
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/** Ends a job that waits, or keeps that one which has a sandbox is asked to end. True: it waited, so that it is over. */
export async function stopJob(transaction: WriteTransaction, sequence: number, end: JobEnd): Promise<boolean> {
  const stored = await readJob(transaction, sequence);
  if (stored?.job.status === 'PENDING' && stored.job.instanceId === '')
    return await finishJob(transaction, sequence, end);
  await setJobStopReason(transaction, sequence, 'stopped');
  return false;
}

/** Back to the queue: nothing of it runs. */
export async function requeueJob(
  transaction: WriteTransaction,
  sequence: number,
  again: { readonly attempt: number; readonly notBeforeMs: number; readonly message: string },
): Promise<void> {
  await endInstanceOf(transaction, sequence);
  await transaction
    .updateTable('jobs')
    .set({
      status: 'PENDING',
      attempt: again.attempt,
      not_before_ms: again.notBeforeMs,
      message: again.message,
      instance_id: '',
      pid: '',
      started_at_ms: null,
    })
    .where('sequence', '=', sequence)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .execute();
}

/** The instance of an open job is needed no longer: whoever finds it removes it. */
async function endInstanceOf(transaction: WriteTransaction, sequence: number): Promise<void> {
  await transaction
    .updateTable('instances')
    .set({ status: 'STOPPING' })
    .where('owner_kind', '=', 'job')
    .where('id', '=', ({ selectFrom }) =>
      selectFrom('jobs')
        .select('instance_id')
        .where('sequence', '=', sequence)
        .where('status', 'in', ['PENDING', 'RUNNING']),
    )
    .execute();
}

/** False when it is not there, or not over. */
export async function deleteJob(transaction: WriteTransaction, sequence: number): Promise<boolean> {
  const { numDeletedRows } = await transaction
    .deleteFrom('jobs')
    .where('sequence', '=', sequence)
    .where('status', 'not in', ['PENDING', 'RUNNING'])
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}

/** Ended jobs that are too old or too many, at most `limit` of them, the oldest first. */
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
  const tooMany = await database
    .selectFrom('jobs')
    .select('sequence')
    .where('ended_at_ms', 'is not', null)
    .orderBy('ended_at_ms', 'desc')
    .offset(bounds.keep)
    .limit(bounds.limit)
    .execute();
  return [...new Set([...old, ...tooMany].map(row => row.sequence))].slice(0, bounds.limit);
}

/** Of these, the ones that are still known. */
export async function knownJobSequences(database: Database): Promise<ReadonlySet<number>> {
  const rows = await database.selectFrom('jobs').select('sequence').execute();
  return new Set(rows.map(row => row.sequence));
}

function toStored(row: JobTable): StoredJob {
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
  };
}

import type { JobSpec } from '../../core/job.ts';
import { packagesOf } from '../../core/runtime-env.ts';
import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import { publish } from './feed.ts';
import { PACKAGES } from './job-packages.ts';
import { aloneWithJob, finishJob, type JobOwner, type StoredJob, TOPIC_JOBS, toStored } from './jobs.ts';

/** Numbers of open jobs of a lost node. */
export interface LostJobs {
  readonly failed: number;
  /** Jobs that have not run and now have no node; a live node takes them. */
  readonly freed: number;
}

/** Assigns the open jobs of this node to its new process, or to the same process after a rejoin. */
export async function ownJobs(transaction: WriteTransaction, { nodeId, epoch }: JobOwner): Promise<void> {
  await transaction
    .updateTable('jobs')
    .set({ node_epoch: epoch })
    .where('node_id', '=', nodeId)
    .where('ended_at_ms', 'is', null)
    .where('node_epoch', '<', epoch)
    .execute();
}

/** An open job of this node. */
export interface OwnJob {
  readonly sequence: number;
  /** The job has no sandbox. */
  readonly waits: boolean;
  /** The job was asked to end. */
  readonly isStopped: boolean;
}

/** Returns the open jobs of a node, oldest first. */
export async function listOwnJobs(database: Database, nodeId: string): Promise<readonly OwnJob[]> {
  const rows = await database
    .selectFrom('jobs')
    .select(['sequence', 'instance_id', 'stop_reason'])
    .where('ended_at_ms', 'is', null)
    .where('node_id', '=', nodeId)
    .orderBy('sequence')
    .execute();
  return rows.map(({ sequence, instance_id, stop_reason }) => ({
    sequence,
    waits: instance_id === '',
    isStopped: stop_reason !== '',
  }));
}

/**
 * Fails or frees the open jobs of the lost node `nodeId`, for the sweeper. `epoch` is that of the node's last
 * known process. Jobs that may have begun there fail with `reason`, since they must not begin twice. The
 * others may run elsewhere, if another node can get their packages. If the node has returned meanwhile, its
 * process has a greater epoch and keeps its jobs.
 */
export async function failJobsOfNode(
  transaction: WriteTransaction,
  nodeId: string,
  epoch: number,
  reason: string,
  nowMs: number,
): Promise<LostJobs> {
  await alone(transaction, PACKAGES);
  await transaction.deleteFrom('job_packages').where('node_id', '=', nodeId).where('node_epoch', '<=', epoch).execute();
  const rows = await transaction
    .selectFrom('jobs')
    .select('sequence')
    .where('ended_at_ms', 'is', null)
    // Includes jobs without a node: their packages may have been on this node.
    .where(({ eb, or, and }) =>
      or([eb('node_id', '=', ''), and([eb('node_id', '=', nodeId), eb('node_epoch', '<=', epoch)])]),
    )
    .orderBy('sequence')
    .execute();
  let failed = 0;
  let freed = 0;
  for (const { sequence } of rows) {
    await aloneWithJob(transaction, sequence);
    // Read again, now that no other transaction can change the job.
    const row = await openRow(transaction, sequence);
    if (row === undefined || (row.node_id !== '' && (row.node_id !== nodeId || row.node_epoch > epoch))) continue;
    const { job } = toStored(row);
    const fail = async (message: string) => {
      const end = { status: 'FAILED', message, errorType: 'JOB_SUPERVISOR_ACTOR_DIED', exitCode: null } as const;
      if (await finishJob(transaction, job.sequence, job.nodeId, { ...end, endedAtMs: nowMs })) failed += 1;
    };
    if (job.nodeId !== '' && job.instanceId !== '') {
      await fail(reason);
      continue;
    }
    const missing = await missingPackage(transaction, job);
    if (missing !== null) await fail(`${reason} Its package gcs://${missing} was nowhere else.`);
    else if (job.nodeId !== '' && (await freeJob(transaction, job.sequence, nodeId))) freed += 1;
  }
  if (freed > 0) await publish(transaction, TOPIC_JOBS, null);
  return { failed, freed };
}

/** Returns jobs without a node, oldest first. */
export async function listFreeJobs(database: Database, limit: number): Promise<readonly StoredJob[]> {
  const rows = await database
    .selectFrom('jobs')
    .selectAll()
    .where('ended_at_ms', 'is', null)
    .where('node_id', '=', '')
    .orderBy('sequence')
    .limit(limit)
    .execute();
  return rows.map(toStored);
}

/** Assigns a job without a node to `nodeId`. Returns false when another node took it or it has ended. */
export async function takeFreeJob(
  transaction: WriteTransaction,
  sequence: number,
  { nodeId, epoch }: JobOwner,
): Promise<boolean> {
  await aloneWithJob(transaction, sequence);
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({ node_id: nodeId, node_epoch: epoch })
    .where('sequence', '=', sequence)
    .where('node_id', '=', '')
    .where('status', '=', 'PENDING')
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/** The node of a job, or its last node after its end. */
export interface JobPlace {
  readonly nodeId: string;
  readonly isOpen: boolean;
  /** The job has a sandbox, or is just getting one. */
  readonly hasBegun: boolean;
  readonly isLogStored: boolean;
}

/** Returns the node of a job; null when the tenant has no job of this id. */
export async function nodeOfJob(database: Database, tenant: string, id: string): Promise<JobPlace | null> {
  const row = await database
    .selectFrom('jobs')
    .select(['node_id', 'ended_at_ms', 'instance_id', 'is_log_stored'])
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirst();
  if (row === undefined) return null;
  const isOpen = row.ended_at_ms === null;
  return {
    nodeId: row.node_id,
    isOpen,
    hasBegun: isOpen && row.instance_id !== '',
    isLogStored: row.is_log_stored === 1,
  };
}

/** Returns jobs that ended on this node and have no log in the object store yet. */
export async function listUnstoredLogs(database: Database, nodeId: string, limit: number): Promise<readonly number[]> {
  const rows = await database
    .selectFrom('jobs')
    .select('sequence')
    .where('ended_at_ms', 'is not', null)
    .where('node_id', '=', nodeId)
    .where('is_log_stored', '=', 0)
    .orderBy('ended_at_ms')
    .limit(limit)
    .execute();
  return rows.map(({ sequence }) => sequence);
}

/** Marks the log of an ended job as stored. Returns false when the job does not exist. */
export async function markLogStored(transaction: WriteTransaction, sequence: number): Promise<boolean> {
  await aloneWithJob(transaction, sequence);
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({ is_log_stored: 1 })
    .where('sequence', '=', sequence)
    .where('ended_at_ms', 'is not', null)
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

async function openRow(transaction: WriteTransaction, sequence: number) {
  const query = transaction.selectFrom('jobs').selectAll().where('sequence', '=', sequence);
  return await query.where('ended_at_ms', 'is', null).executeTakeFirst();
}

async function freeJob(transaction: WriteTransaction, sequence: number, nodeId: string): Promise<boolean> {
  const { numUpdatedRows } = await transaction
    .updateTable('jobs')
    .set({ node_id: '' })
    .where('sequence', '=', sequence)
    .where('node_id', '=', nodeId)
    .where('status', '=', 'PENDING')
    .where('instance_id', '=', '')
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/** Returns the first package of the job that no node and no object store has; null when none is missing. */
async function missingPackage(
  transaction: WriteTransaction,
  { tenant, spec }: { readonly tenant: string; readonly spec: JobSpec },
): Promise<string | null> {
  for (const name of packagesOf(spec.runtimeEnv)) {
    const found = await transaction
      .selectFrom('job_packages')
      .select('node_id')
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .limit(1)
      .executeTakeFirst();
    if (found === undefined) return name;
  }
  return null;
}

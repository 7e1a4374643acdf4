import { type Kysely, sql } from 'kysely';
import type { SandboxType } from '../../core/instance.ts';
import type { LeaseFence } from '../../core/lease.ts';
import type { Tables, WriteTransaction } from '../database.ts';
import { failJobsOfNode } from './job-owners.ts';
import { fence } from './leases.ts';
import { DATABASE_NOW_MS } from './nodes.ts';

/** Returns the nodes that are alive, or that died less than `lostMs` ago and may return. */
export async function listAwaitedNodes(queries: Kysely<Tables>, lostMs: number): Promise<string[]> {
  const rows = await queries
    .selectFrom('nodes')
    .select('id')
    .where('expires_at_ms', '>', sql<number>`${DATABASE_NOW_MS} - ${sql.lit(lostMs)}`)
    .execute();
  return rows.map(({ id }) => id);
}

/** Returns the nodes that own instances, open jobs or packages of jobs. */
export async function listOwningNodes(queries: Kysely<Tables>): Promise<string[]> {
  const rows = await queries
    .selectFrom('instances')
    .select('node_id')
    .union(queries.selectFrom('jobs').select('node_id').where('ended_at_ms', 'is', null).where('node_id', '!=', ''))
    .union(queries.selectFrom('job_packages').select('node_id'))
    .execute();
  return rows.map(({ node_id }) => node_id);
}

/** The time that pods wait for their node, from the end of its life. */
export interface PodWait {
  /** For a node with an expired life. */
  readonly lostMs: number;
  /** For a node that ended itself: it usually starts again. */
  readonly endedMs: number;
}

/** Returns nodes that are no longer awaited and own pods of agents or functions. */
export async function listNodesOfLostPods(
  queries: Kysely<Tables>,
  wait: PodWait,
  sandboxTypes: Heir['sandboxTypes'],
): Promise<string[]> {
  const rows = await queries
    .selectFrom('nodes')
    .select('id')
    .where(({ not }) => not(isAwaited(wait)))
    .where(({ exists, selectFrom }) =>
      exists(
        selectFrom('instances')
          .select('instances.id')
          .whereRef('instances.node_id', '=', 'nodes.id')
          .where('sandbox_type', 'in', sandboxTypes)
          .where('owner_kind', '!=', 'job'),
      ),
    )
    .execute();
  return rows.map(({ id }) => id);
}

/** A node that ended itself has no roles: `retireNode` precedes `endNode`. */
function isAwaited({ lostMs, endedMs }: PodWait) {
  const waitMs = sql`case when roles = '' then ${sql.lit(endedMs)} else ${sql.lit(lostMs)} end`;
  return sql<boolean>`expires_at_ms > ${DATABASE_NOW_MS} - ${waitMs}`;
}

/** The node that takes over the surviving sandboxes of a lost node. */
export interface Heir {
  readonly nodeId: string;
  /** Drivers with sandboxes outside of the node's machine. */
  readonly sandboxTypes: readonly SandboxType[];
}

/** Numbers of changed records of a lost node. */
export interface GivenUp {
  readonly inherited: number;
  readonly givenUp: number;
  /** Ended jobs among `givenUp`. */
  readonly jobsFailed: number;
}

/**
 * Assigns a dead node's agents and instances of functions to the heir, if their sandboxes run elsewhere.
 * Their jobs wait for `giveUpNode`. Returns how many changed; 0 while the node is awaited. Fails with
 * `Fenced` when another node is the sweeper.
 */
export async function inheritPods(
  transaction: WriteTransaction,
  sweeper: LeaseFence | null,
  nodeId: string,
  heir: Heir,
  wait: PodWait,
): Promise<number> {
  await fence(transaction, sweeper);
  if ((await lockNode(transaction, nodeId, wait))?.is_awaited) return 0;
  const { numUpdatedRows } = await inherit(transaction, nodeId, heir)
    .where('owner_kind', '!=', 'job')
    .executeTakeFirstOrThrow();
  return Number(numUpdatedRows);
}

/** Locks the node's record, so that the node cannot join before the transaction ends. */
function lockNode(transaction: WriteTransaction, nodeId: string, wait: PodWait) {
  return transaction
    .selectFrom('nodes')
    .select(['epoch', isAwaited(wait).as('is_awaited')])
    .where('id', '=', nodeId)
    .forShare()
    .executeTakeFirst();
}

function inherit(transaction: WriteTransaction, nodeId: string, heir: Heir) {
  return transaction
    .updateTable('instances')
    .set({ node_id: heir.nodeId })
    .where('node_id', '=', nodeId)
    .where('sandbox_type', 'in', heir.sandboxTypes);
}

/**
 * Gives up everything of a lost node.
 * - Instances with sandboxes that run elsewhere are assigned to the heir.
 * - Other agents that ran or were restarting become FAILED for `reason`, so that callers can delete them and
 * reuse their names.
 * - Instances of functions and builds, and agents during their create or delete, are deleted.
 * - Jobs that began become FAILED; others may run elsewhere.
 *
 * Only the node itself touches its sandboxes. When it returns, it ends those with a FAILED record or none.
 * Returns how many changed; 0 when the node has returned. Fails with `Fenced` when another node is the
 * sweeper.
 */
export async function giveUpNode(
  transaction: WriteTransaction,
  sweeper: LeaseFence | null,
  nodeId: string,
  heir: Heir,
  lostMs: number,
  reason: string,
  nowMs: number,
): Promise<GivenUp> {
  await fence(transaction, sweeper);
  const node = await lockNode(transaction, nodeId, { lostMs, endedMs: lostMs });
  if (node?.is_awaited) return { inherited: 0, givenUp: 0, jobsFailed: 0 };
  const pods = inherit(transaction, nodeId, heir);
  // The job itself fails below or starts again elsewhere, so its pod only has to end.
  const ofJobs = await pods.set({ status: 'STOPPING' }).where('owner_kind', '=', 'job').executeTakeFirstOrThrow();
  const others = await pods.where('owner_kind', '!=', 'job').executeTakeFirstOrThrow();
  const failed = await transaction
    .updateTable('instances')
    .set({ status: 'FAILED', status_reason: reason })
    .where('node_id', '=', nodeId)
    .where('owner_kind', '=', 'agent')
    .where(({ or, and, eb }) =>
      or([eb('status', 'in', ['RUNNING', 'PAUSED']), and([eb('status', '=', 'CREATING'), eb('epoch', '>', 1)])]),
    )
    .executeTakeFirstOrThrow();
  const gone = await transaction
    .deleteFrom('instances')
    .where('node_id', '=', nodeId)
    .where('owner_kind', '!=', 'job')
    .where(({ or, eb }) => or([eb('owner_kind', '!=', 'agent'), eb('status', 'in', ['CREATING', 'STOPPING'])]))
    .executeTakeFirstOrThrow();
  const jobs = await failJobsOfNode(transaction, nodeId, node?.epoch ?? Number.MAX_SAFE_INTEGER, reason, nowMs);
  return {
    inherited: Number(ofJobs.numUpdatedRows + others.numUpdatedRows),
    givenUp: Number(failed.numUpdatedRows + gone.numDeletedRows) + jobs.failed + jobs.freed,
    jobsFailed: jobs.failed,
  };
}

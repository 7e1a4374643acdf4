import { type Kysely, sql } from 'kysely';
import type { SandboxType } from '../core/instance.ts';
import type { LeaseFence } from '../core/lease.ts';
import type { Tables, WriteTransaction } from './database.ts';
import { failJobsOfNode } from './job-owners.ts';
import { fence } from './leases.ts';
import { DATABASE_NOW_MS } from './nodes.ts';

/** Nodes that live, or have died so recently that their return is waited for. */
export async function listAwaitedNodes(queries: Kysely<Tables>, lostMs: number): Promise<string[]> {
  const rows = await queries
    .selectFrom('nodes')
    .select('id')
    .where('expires_at_ms', '>', sql<number>`${DATABASE_NOW_MS} - ${sql.lit(lostMs)}`)
    .execute();
  return rows.map(({ id }) => id);
}

/** Nodes that have something: instances, open jobs, packages of jobs. */
export async function listOwningNodes(queries: Kysely<Tables>): Promise<string[]> {
  const rows = await queries
    .selectFrom('instances')
    .select('node_id')
    .union(queries.selectFrom('jobs').select('node_id').where('ended_at_ms', 'is', null).where('node_id', '!=', ''))
    .union(queries.selectFrom('job_packages').select('node_id'))
    .execute();
  return rows.map(({ node_id }) => node_id);
}

/** Who looks after what a lost node had, where that lives on. */
export interface Heir {
  readonly nodeId: string;
  /** Drivers whose sandboxes do not live on the node's machine. */
  readonly sandboxTypes: readonly SandboxType[];
}

/** What became of what a lost node had. */
export interface GivenUp {
  readonly inherited: number;
  readonly givenUp: number;
  /** Of these: jobs that are over. */
  readonly jobsFailed: number;
}

/**
 * Gives up everything of a lost node. Instances whose sandboxes live elsewhere are the heir's from now on. Its other agents become FAILED for `reason`, so that callers can delete them and use their names again.
 * Instances without a name go. Jobs that began become FAILED, others may run elsewhere. Only the node itself touches its sandboxes: when it
 * comes back it finds that they have no row, or a FAILED one, and ends them. Answers how many changed; none when the node has come back. Fails with `Fenced` when another node is the sweeper by now.
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
  const node = await transaction
    .selectFrom('nodes')
    .select(['epoch', sql<boolean>`expires_at_ms > ${DATABASE_NOW_MS} - ${sql.lit(lostMs)}`.as('is_awaited')])
    .where('id', '=', nodeId)
    // It cannot join before the end of this transaction.
    .forShare()
    .executeTakeFirst();
  if (node?.is_awaited) return { inherited: 0, givenUp: 0, jobsFailed: 0 };
  const inherit = transaction
    .updateTable('instances')
    .set({ node_id: heir.nodeId })
    .where('node_id', '=', nodeId)
    .where('sandbox_type', 'in', heir.sandboxTypes);
  // The job itself fails below, or begins anew elsewhere: what it ran in only has to end.
  const ofJobs = await inherit.set({ status: 'STOPPING' }).where('owner_kind', '=', 'job').executeTakeFirstOrThrow();
  const others = await inherit.where('owner_kind', '!=', 'job').executeTakeFirstOrThrow();
  const failed = await transaction
    .updateTable('instances')
    .set({ status: 'FAILED', status_reason: reason })
    .where('node_id', '=', nodeId)
    .where('owner_kind', '=', 'agent')
    .where(({ or, and, eb }) =>
      or([eb('status', '=', 'RUNNING'), and([eb('status', '=', 'CREATING'), eb('epoch', '>', 1)])]),
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

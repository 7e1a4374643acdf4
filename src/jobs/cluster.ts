import type { LeaseFence } from '../core/lease.ts';

/** Nodes that share the database, as jobs see them. A single node has no `JobCluster`. */
export interface JobCluster {
  /**
   * Returns the epoch of this process. Each process of a node has a greater epoch than the one before. The
   * epoch also increases each time that the node was considered dead.
   */
  epoch(): number;
  /** Returns true on the one node that submits for schedules and removes old jobs. */
  isHeld(): boolean;
  /**
   * Returns the fence for writes that only the node with `isHeld` may do. Fails with `unavailable` when
   * another node has taken over.
   */
  fence(): LeaseFence | null;
  /** Returns the living nodes. Jobs are assigned to these only. */
  livingNodes(): ReadonlySet<string>;
  /**
   * Calls `listener` when another node wrote a job record for this node, and when `isHeld` or `epoch` has
   * changed.
   */
  onChange(listener: () => void): void;
}

/** Node of this process, as the records of jobs name it. */
export interface JobNode {
  readonly id: string;
  /** null: this is the only node. */
  readonly cluster: JobCluster | null;
}

/** Returns the node and the process that own the jobs of this service. */
export function ownerOf({ id, cluster }: JobNode): { readonly nodeId: string; readonly epoch: number } {
  return { nodeId: id, epoch: cluster?.epoch() ?? 0 };
}

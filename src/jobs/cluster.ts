import type { LeaseFence } from '../core/lease.ts';

/** What jobs have to know of the other nodes that share the database. Where there is none, there is no cluster. */
export interface JobCluster {
  /** Of this process: greater than that of every earlier one of its node, and anew each time that the node was taken for dead. */
  epoch(): number;
  /** Whether this node submits what schedules ask for and forgets what is too old: one of all nodes does. */
  isHeld(): boolean;
  /** For what only the node writes for which `isHeld`. Fails with `unavailable` when it is another one by now. */
  fence(): LeaseFence | null;
  /** The nodes that are alive: a job is given to none of the others. */
  livingNodes(): ReadonlySet<string>;
  /** Calls back when another node wrote something of jobs that is for this one, and when `isHeld` or `epoch` has changed. */
  onChange(listener: () => void): void;
}

/** This node as the rows of jobs name it. */
export interface JobNode {
  readonly id: string;
  /** null: it is the only one. */
  readonly cluster: JobCluster | null;
}

export function ownerOf({ id, cluster }: JobNode): { readonly nodeId: string; readonly epoch: number } {
  return { nodeId: id, epoch: cluster?.epoch() ?? 0 };
}

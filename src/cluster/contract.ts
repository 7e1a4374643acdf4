import type { LeaseFence } from '../core/lease.ts';
import type { Joining, LivingNode, NodeLife } from '../storage/queries/nodes.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';

export type { Joining, LeaseFence, LivingNode, NodeLife };

/**
 * Leases in addition to those of the shards of functions. `jobs`: schedules, and the removal of old jobs.
 * `sweeper`: cleaning up for all replicas.
 */
export type LeaseName = 'jobs' | 'sweeper' | `shard-${string}`;

/**
 * State that the replicas over one PostgreSQL share. An embedded database has one replica, which is always a
 * member and holds all leases, without timers and queries (`single.ts`).
 */
export interface Cluster {
  readonly nodeId: string;
  readonly membership: Membership;
  readonly shards: Shards;
  readonly feed: Feed;
  /**
   * Joins, so that writes can be fenced, and notes the feed's position after which listeners are notified:
   * fill caches afterwards. Takes no lease yet. Fails with `unavailable` when the database does not answer,
   * or when another process lives as this node.
   */
  join(): Promise<void>;
  /** Begins to take leases. */
  setLeaseOwner(owner: LeaseOwner): void;
  /**
   * Transfers all leases (`onReleasing`) and takes no more. This node stays a member: its life fences the
   * work that still runs.
   */
  retire(): Promise<void>;
  /** Ends this life at once. Writes cannot be fenced any more. */
  leave(): Promise<void>;
}

export interface Membership {
  /**
   * Returns true while this life continues. Uses the monotonic clock of the process, so the result is right
   * even just after a suspension. Costs a comparison.
   */
  isMember(): boolean;
  /**
   * Returns the current life, for `nodeFence` of write operations; null on an embedded database. Fails with
   * `unavailable` after a loss.
   */
  fence(): NodeLife | null;
  /** Returns the living nodes, this one included, sorted by id, as of the last heartbeat or change. */
  living(): readonly LivingNode[];
  /** Returns the age of this life, milliseconds; 0 when it is over. */
  livesForMs(): number;
  /** Returns the time since the last successful heartbeat was sent, milliseconds. */
  heartbeatAgeMs(): number;
}

/** Holder of leases. Its methods must not throw. */
export interface LeaseOwner {
  onAcquired(name: LeaseName, epoch: number): void;
  /**
   * Called before the lease is transferred. The owner takes no new work under it and lets running work end.
   * The lease stays held and its fence valid until this resolves, or for a bounded time. Then another node
   * has it; `onLost` is not called.
   */
  onReleasing(name: LeaseName): Promise<void>;
  /**
   * Called at once when another node has the lease or may have it. The database refuses all later writes
   * under it.
   */
  onLost(name: LeaseName): void;
}

export interface Shards {
  /** Returns true if this node owns the lease now. A lease that is being released is still held. */
  holds(name: LeaseName): boolean;
  /**
   * Returns the fence of a lease for write operations; null on an embedded database. Fails with `unavailable`
   * when the lease is not held.
   */
  fence(name: LeaseName): LeaseFence | null;
  /**
   * Returns the living node that owns a shard or lease, as far as this one knows; null: none at the moment.
   */
  ownerOf(name: LeaseName): LivingNode | null;
  /** Counts of leases that this node acquired, released and lost. */
  readonly changes: Readonly<Record<LeaseChange, number>>;
}

export type LeaseChange = 'acquired' | 'released' | 'lost';

/** Listener for changes of a key. `key` null: anything of the topic may have changed. */
export type FeedListener = (key: string | null) => void;

/** Changes that other nodes committed. An embedded database reports none. */
export interface Feed {
  /**
   * Calls `listener` for each change of a topic. The returned function unsubscribes. A listener must be fast;
   * its errors are logged.
   */
  subscribe(topic: string, listener: FeedListener): () => void;
  /**
   * Returns writes whose operations may `publish` (`storage/queries/feed.ts`): other nodes are notified after
   * the commit.
   */
  publishing(writes: DurableWrites): DurableWrites;
  /** Returns how far this node may be behind, beyond the time between two polls, milliseconds. */
  behindMs(): number;
}

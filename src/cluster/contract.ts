import type { LeaseFence } from '../core/lease.ts';
import type { DurableWrites } from '../storage/durable.ts';
import type { Joining, LivingNode, NodeLife } from '../storage/nodes.ts';

export type { Joining, LeaseFence, LivingNode, NodeLife };

/** Leases, beside those of the shards of functions. `jobs`: their queue and the schedules. `sweeper`: cleaning up, once for all replicas. */
export type LeaseName = 'jobs' | 'sweeper' | `shard-${string}`;

/**
 * The shared knowledge of the replicas over one PostgreSQL. With the embedded database there is one replica, which always is a member
 * and holds everything: no timer, no query (`single.ts`).
 */
export interface Cluster {
  readonly nodeId: string;
  readonly membership: Membership;
  readonly shards: Shards;
  readonly feed: Feed;
  /**
   * Joins, so that fences can be made, and notes the place in the feed from which on listeners hear of changes: fill caches after it.
   * Takes no lease yet. Fails with `unavailable` when the database does not answer, or another process lives as this node.
   */
  join(): Promise<void>;
  /** Leases are taken from now on. */
  own(owner: LeaseOwner): void;
  /** Hands over all leases (`onReleasing`), and takes none any more. This node stays a member: its life fences the work that still runs. */
  retire(): Promise<void>;
  /** Ends this life at once. Nothing can be fenced any more. */
  leave(): Promise<void>;
}

export interface Membership {
  /** Whether this life goes on, at this moment: by the monotonic clock of the process, so also right after it slept. Costs a comparison. */
  isMember(): boolean;
  /** The one that goes on, null on an embedded database. For `nodeFence` of write operations. Fails with `unavailable` after a loss. */
  fence(): NodeLife | null;
  /** This one included, sorted by id, as of the last heartbeat or change. */
  living(): readonly LivingNode[];
  /** How long this life has gone on, in ms; 0 when it is over. */
  livesForMs(): number;
  /** How long ago the last heartbeat that succeeded was sent. */
  heartbeatAgeMs(): number;
}

/** What a node does that holds leases. None of it may throw. */
export interface LeaseOwner {
  onAcquired(name: LeaseName, epoch: number): void;
  /**
   * It is asked to give the lease away: it takes no new work under it and lets what runs come to an end. Until this resolves, or for a
   * bounded time, the lease is still held and its fence good. Then it is another's; `onLost` is not called.
   */
  onReleasing(name: LeaseName): Promise<void>;
  /** At once: it is another's, or may be. The database refuses all later writes under it. */
  onLost(name: LeaseName): void;
}

export interface Shards {
  /** Whether this node is the owner, at this moment. A lease that is being released is still held. */
  holds(name: LeaseName): boolean;
  /** For `fence` of write operations; null on an embedded database. Fails with `unavailable` when the lease is not held. */
  fence(name: LeaseName): LeaseFence | null;
  /** The living node that owns a shard or lease, as far as this one knows; null: nobody does, for the moment. */
  ownerOf(name: LeaseName): LivingNode | null;
  /** How many leases changed hands here. */
  readonly changes: Readonly<Record<LeaseChange, number>>;
}

export type LeaseChange = 'acquired' | 'released' | 'lost';

/** `key` null: anything of the topic may have changed. */
export type FeedListener = (key: string | null) => void;

/** Changes that other nodes committed. On an embedded database nothing ever comes. */
export interface Feed {
  /** The returned function ends it. A listener is quick; what it throws is logged. */
  subscribe(topic: string, listener: FeedListener): () => void;
  /** Writes whose operations may `publish` (`storage/feed.ts`): other nodes are woken after the commit. */
  publishing(writes: DurableWrites): DurableWrites;
  /** How far this node may be behind, beyond the time between two polls. */
  behindMs(): number;
}

/** What this part reports. */
export interface ClusterLog {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
}

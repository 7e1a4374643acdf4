import { messageOf } from '../core/error.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import { ClusterDatabase } from '../storage/postgres/cluster-database.ts';
import { trimFeed } from '../storage/queries/feed.ts';
import { TOPIC_LEASES } from '../storage/queries/leases.ts';
import { removeDeadNodes, TOPIC_NODES } from '../storage/queries/nodes.ts';
import type { Cluster, Joining, LeaseName, LeaseOwner } from './contract.ts';
import { NodeFeed } from './feed.ts';
import { type MembershipTimes, NodeMembership } from './membership.ts';
import { NodeShards, type ShardTimes } from './shards.ts';

export interface ReplicaTimes extends MembershipTimes, ShardTimes {
  readonly queryTimeoutMs: number;
  readonly pollMs: number;
  readonly sweepMs: number;
  /** Age above which changes are removed from the feed. */
  readonly keepChangesMs: number;
  readonly keepNodesMs: number;
}

/** Default times. The work of a dead node is taken over within 10 s: its TTL plus one heartbeat. */
const TIMES: ReplicaTimes = {
  ttlMs: 8000,
  heartbeatMs: 2000,
  marginMs: 1000,
  queryTimeoutMs: 2000,
  releaseWaitMs: 10_000,
  retryMs: 250,
  maxReleasing: 4,
  pollMs: 1000,
  sweepMs: 60_000,
  keepChangesMs: 600_000,
  keepNodesMs: 86_400_000,
};

export interface ReplicaOptions {
  /** URL of a PostgreSQL whose tables are up to date. */
  readonly url: string;
  /** URL of the same database without a transaction pooler in between. */
  readonly listenUrl?: string | null;
  readonly self: Joining;
  readonly log: Log;
  /** Overrides for tests. */
  readonly times?: Partial<ReplicaTimes>;
  /** False: changes are only polled, as behind a transaction pooler. */
  readonly hasWakeUps?: boolean;
}

/** Membership, leases and change feed of this process, one of several replicas over one PostgreSQL. */
export class ClusterReplica implements Cluster {
  readonly nodeId: string;
  readonly membership: NodeMembership;
  readonly shards: NodeShards;
  readonly feed: NodeFeed;
  readonly #database: ClusterDatabase;
  readonly #times: ReplicaTimes;
  readonly #log: Log;
  readonly #sweeps: Interval;

  private constructor(database: ClusterDatabase, times: ReplicaTimes, { self, log }: ReplicaOptions) {
    this.nodeId = self.id;
    this.#database = database;
    this.#times = times;
    this.#log = log;
    const events = { refreshed: () => this.shards.reconcileSoon(), lost: () => this.shards.drop() };
    this.membership = new NodeMembership(database, self, { times, events, log });
    this.shards = new NodeShards(database, this.membership, { times, log });
    this.feed = new NodeFeed(database, { pollMs: times.pollMs, log });
    this.feed.subscribe(TOPIC_LEASES, key => (key === null ? this.shards.forget() : this.shards.reconcileSoon()));
    this.feed.subscribe(TOPIC_NODES, () => void this.membership.refresh().catch(() => undefined));
    this.#sweeps = new Interval(times.sweepMs, () => this.#sweep());
  }

  /** Creates a replica without a query to the database. */
  static async open(options: ReplicaOptions): Promise<ClusterReplica> {
    const { url, listenUrl = null, self, hasWakeUps = true } = options;
    const times = { ...TIMES, ...options.times };
    const { queryTimeoutMs } = times;
    const database = await ClusterDatabase.open({ url, listenUrl, nodeId: self.id, queryTimeoutMs, hasWakeUps });
    return new ClusterReplica(database, times, options);
  }

  async join(): Promise<void> {
    await this.feed.start();
    await this.membership.join();
    this.#sweeps.start();
  }

  setLeaseOwner(owner: LeaseOwner): void {
    this.shards.own(owner);
  }

  async retire(): Promise<void> {
    await this.membership.retire().catch(error => {
      this.#log.warn({ problem: messageOf(error) }, 'cannot notify other replicas of the coming stop');
    });
    await this.shards.retire();
  }

  async leave(): Promise<void> {
    await this.#sweeps.close();
    await this.shards.close();
    await this.membership.leave().catch(error => {
      this.#log.warn({ problem: messageOf(error) }, 'cannot notify other replicas of the stop');
    });
    await this.feed.close();
    await this.#database.close();
  }

  async #sweep(): Promise<void> {
    if (!this.shards.holds('sweeper')) return;
    try {
      await trimFeed(this.#database.database, this.#times.keepChangesMs);
      await removeDeadNodes(this.#database.database, this.#times.keepNodesMs);
    } catch (error) {
      this.#log.warn({ problem: messageOf(error) }, 'cannot remove old changes; retrying');
    }
  }
}

/** Returns `ClusterStatus` of `api/admin/cluster.ts` from memory, without a query to the database. */
export function clusterStatus(cluster: Cluster, storage: 'sqlite' | 'postgres') {
  const { membership, shards, feed, nodeId } = cluster;
  const idOf = (name: LeaseName) => shards.ownerOf(name)?.id ?? null;
  const owners = SHARD_NAMES.map(idOf);
  const named = { jobs: idOf('jobs'), sweeper: idOf('sweeper') };
  return {
    node_id: nodeId,
    storage,
    is_member: membership.isMember(),
    heartbeat_age_ms: Math.max(0, Math.round(membership.heartbeatAgeMs())),
    feed_behind_ms: Math.round(feed.behindMs()),
    shards: { total: SHARD_NAMES.length, owned: owners.filter(id => id !== null).length },
    ...named,
    nodes: membership.living().map(({ id, epoch, advertise, roles, version, joinedAtMs }) => ({
      id,
      epoch,
      address: advertise,
      roles: [...roles],
      version,
      joined_at: new Date(joinedAtMs).toISOString(),
      shards: owners.filter(owner => owner === id).length,
      leases: (['jobs', 'sweeper'] as const).filter(name => named[name] === id),
    })),
  };
}

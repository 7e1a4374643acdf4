import { messageOf, unavailable } from '../core/error.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import { pause } from '../lib/backoff.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { ClusterDatabase } from '../storage/postgres/cluster-database.ts';
import { publish } from '../storage/queries/feed.ts';
import {
  endNode,
  fenced,
  joinNode,
  listLivingNodes,
  prolongNode,
  retireNode,
  TOPIC_NODES,
} from '../storage/queries/nodes.ts';
import type { Cluster, Joining, LeaseName, LeaseOwner, LivingNode, Membership, NodeLife } from './contract.ts';

export interface MembershipTimes {
  /** Life of a node without a heartbeat, by the clock of the database. */
  readonly ttlMs: number;
  readonly heartbeatMs: number;
  /** Time by which a node considers itself lost earlier than others do. */
  readonly marginMs: number;
}

/** Interval of the checks whether another process lives as this node. */
const LOOK_MS = 100;

/** Consequences of changes in the membership. */
export interface MembershipEvents {
  /** Called after a heartbeat succeeded, or after nodes joined or left. */
  refreshed(): void;
  /** Called when the life is over: immediately, also from within `isMember`. */
  lost(): void;
}

/**
 * Membership of this node among the replicas. Others use the database's clock. This node uses its own
 * monotonic clock, from the moment when it *sent* its last successful heartbeat. So it stops acting before
 * others take over, however long it was suspended or the answer took.
 */
export class NodeMembership implements Membership {
  readonly #database: ClusterDatabase;
  readonly #self: Joining;
  readonly #times: MembershipTimes;
  readonly #events: MembershipEvents;
  readonly #log: Log;
  readonly #beats: Interval;
  #life: NodeLife | null = null;
  #lastEpoch: number | null = null;
  #joinedMs = 0;
  #sentMs = Number.NEGATIVE_INFINITY;
  #validUntilMs = Number.NEGATIVE_INFINITY;
  #expiry: NodeJS.Timeout | undefined;
  #living: readonly LivingNode[] = [];
  #problem: string | null = null;
  #isRetired = false;
  #isLeaving = false;

  constructor(
    database: ClusterDatabase,
    self: Joining,
    { times, events, log }: { readonly times: MembershipTimes; readonly events: MembershipEvents; readonly log: Log },
  ) {
    this.#database = database;
    this.#self = self;
    this.#times = times;
    this.#events = events;
    this.#log = log;
    this.#beats = new Interval(times.heartbeatMs, () => this.#beat());
  }

  isMember(): boolean {
    if (this.#life === null) return false;
    if (performance.now() < this.#validUntilMs) return true;
    this.#lose('no heartbeat reached the database in time');
    return false;
  }

  /** Returns the current life, or null. */
  life(): NodeLife | null {
    return this.isMember() ? this.#life : null;
  }

  fence(): NodeLife {
    const life = this.life();
    if (life === null) throw fenced('this replica has lost its place in the cluster: nothing was written');
    return life;
  }

  living(): readonly LivingNode[] {
    return this.#living;
  }

  livesForMs(): number {
    return this.isMember() ? performance.now() - this.#joinedMs : 0;
  }

  heartbeatAgeMs(): number {
    return performance.now() - this.#sentMs;
  }

  /** Begins the first life of this process, which ends that of any other process with this node's id. */
  async join(): Promise<void> {
    await this.#join();
    if (this.#life === null) throw unavailable(`another process lives as the node "${this.#self.id}"`);
    await this.refresh();
    this.#beats.start();
  }

  /**
   * Returns another process that lives as this node, or null; must be called before the first life. Such a
   * life is still prolonged, unlike that of a dead process. A node that restarts after a crash waits for at
   * most about one heartbeat.
   */
  async twin(): Promise<LivingNode | null> {
    const { heartbeatMs, marginMs } = this.#times;
    const untilMs = performance.now() + heartbeatMs + marginMs;
    let before = await this.#ownRow();
    while (before !== null && performance.now() < untilMs) {
      await pause(LOOK_MS);
      const now = await this.#ownRow();
      if (now !== null && (now.epoch !== before.epoch || now.expiresInMs > before.expiresInMs)) return now;
      before = now;
    }
    return null;
  }

  async #ownRow(): Promise<LivingNode | null> {
    const living = await listLivingNodes(this.#database.database);
    return living.find(({ id }) => id === this.#self.id) ?? null;
  }

  async refresh(): Promise<void> {
    this.#living = await listLivingNodes(this.#database.database);
    this.#events.refreshed();
  }

  /** Stays a member and gets no more leases, in later lives too. */
  async retire(): Promise<void> {
    this.#isRetired = true;
    const life = this.life();
    if (life === null) return;
    await this.#writeLife(transaction => retireNode(transaction, life));
    await this.refresh();
  }

  async leave(): Promise<void> {
    this.#isLeaving = true;
    await this.#beats.close();
    const life = this.#life;
    clearTimeout(this.#expiry);
    this.#life = null;
    if (life !== null) await this.#writeLife(transaction => endNode(transaction, life));
  }

  async #beat(): Promise<void> {
    try {
      const life = this.life();
      if (life === null) await this.#join();
      else {
        const sentMs = performance.now();
        if (await prolongNode(this.#database.database, life, this.#times.ttlMs)) this.#prolong(life, sentMs);
        else this.#lose('the database has another record or none for this replica');
      }
      // Immediate, because others have begun to take over.
      if (this.#life === null && !this.#isLeaving) await this.#join();
      await this.refresh();
      if (this.#life !== null) this.#solved();
    } catch (error) {
      this.#report(messageOf(error));
    }
  }

  async #join(): Promise<void> {
    const sentMs = performance.now();
    const self = this.#isRetired ? { ...this.#self, roles: [] } : this.#self;
    const epoch = await this.#writeLife(transaction => joinNode(transaction, self, this.#times.ttlMs, this.#lastEpoch));
    if (epoch === null) {
      this.#report(`another process runs as the node "${this.#self.id}"; this process waits until it has stopped`);
      return;
    }
    this.#lastEpoch = epoch;
    this.#life = { nodeId: self.id, nodeEpoch: epoch };
    this.#joinedMs = sentMs;
    this.#prolong(this.#life, sentMs);
    this.#log.info({ nodeId: self.id, epoch }, 'joined the cluster');
  }

  #prolong(life: NodeLife, sentMs: number): void {
    // This life may have ended while the answer was on its way. It stays ended.
    if (this.#life !== life) return;
    const { ttlMs, marginMs } = this.#times;
    this.#sentMs = sentMs;
    this.#validUntilMs = sentMs + ttlMs - marginMs;
    clearTimeout(this.#expiry);
    const leftMs = Math.max(0, this.#validUntilMs - performance.now());
    this.#expiry = setTimeout(() => this.isMember(), leftMs + 1).unref();
  }

  #lose(why: string): void {
    const life = this.#life;
    if (life === null) return;
    this.#life = null;
    clearTimeout(this.#expiry);
    this.#log.warn({ nodeId: life.nodeId, epoch: life.nodeEpoch, why }, 'lost membership in the cluster');
    this.#events.lost();
  }

  /** Runs a change of nodes in a transaction that notifies the other replicas. */
  #writeLife<R>(work: (transaction: Parameters<typeof endNode>[0]) => Promise<R>): Promise<R> {
    return this.#database.transact(async transaction => {
      const result = await work(transaction);
      await publish(transaction, TOPIC_NODES, this.#self.id);
      return result;
    });
  }

  #report(problem: string): void {
    if (this.#problem !== problem) this.#log.warn({ problem }, 'heartbeat failed; retrying');
    this.#problem = problem;
  }

  #solved(): void {
    if (this.#problem !== null) this.#log.info({}, 'heartbeat recovered');
    this.#problem = null;
  }
}

/**
 * Returns the cluster of a single replica with an embedded database. It is always a member, owns everything,
 * and has no timers and no queries.
 */
export function singleReplica(self: Joining): Cluster {
  const nodes: readonly LivingNode[] = [{ ...self, epoch: 1, joinedAtMs: Date.now(), expiresInMs: 0 }];
  let owner: LeaseOwner | null = null;
  return {
    nodeId: self.id,
    membership: {
      isMember: () => true,
      fence: () => null,
      living: () => nodes,
      livesForMs: () => performance.now(),
      heartbeatAgeMs: () => 0,
    },
    shards: {
      holds: () => true,
      fence: () => null,
      ownerOf: () => nodes[0] ?? null,
      changes: { acquired: 0, released: 0, lost: 0 },
    },
    feed: { subscribe: () => () => undefined, publishing: writes => writes, behindMs: () => 0 },
    join: async () => undefined,
    setLeaseOwner(given) {
      owner = given;
      for (const name of ALL) owner.onAcquired(name, 1);
    },
    async retire() {
      await Promise.all(owner === null ? [] : ALL.map(name => owner?.onReleasing(name)));
    },
    leave: async () => undefined,
  };
}

const ALL: readonly LeaseName[] = [...SHARD_NAMES, 'jobs', 'sweeper'];

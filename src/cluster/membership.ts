import { messageOf, unavailable } from '../core/error.ts';
import { pause } from '../lib/backoff.ts';
import { Rounds } from '../lib/rounds.ts';
import type { ClusterDatabase } from '../storage/cluster-database.ts';
import { publish } from '../storage/feed.ts';
import { endNode, fenced, joinNode, listLivingNodes, prolongNode, retireNode, TOPIC_NODES } from '../storage/nodes.ts';
import type { ClusterLog, Joining, LivingNode, Membership, NodeLife } from './contract.ts';

export interface MembershipTimes {
  /** How long a node lives without a heartbeat, by the clock of the database. */
  readonly ttlMs: number;
  readonly heartbeatMs: number;
  /** So much earlier a node counts itself as lost than others do. */
  readonly marginMs: number;
}

/** How often it is looked whether another process lives as this node. */
const LOOK_MS = 100;

/** What follows from it. */
export interface MembershipEvents {
  /** A heartbeat went well, or nodes came or went. */
  refreshed(): void;
  /** The life is over. Called at once, also out of `isMember`. */
  lost(): void;
}

/**
 * The place of this node among the replicas. Others believe the database's clock; this node believes only its own monotonic one, counted
 * from the moment when it *sent* its last successful heartbeat, so that it gives up before others take over, however long it slept or the
 * answer took.
 */
export class NodeMembership implements Membership {
  readonly #database: ClusterDatabase;
  readonly #self: Joining;
  readonly #times: MembershipTimes;
  readonly #events: MembershipEvents;
  readonly #log: ClusterLog;
  readonly #beats: Rounds;
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
    {
      times,
      events,
      log,
    }: { readonly times: MembershipTimes; readonly events: MembershipEvents; readonly log: ClusterLog },
  ) {
    this.#database = database;
    this.#self = self;
    this.#times = times;
    this.#events = events;
    this.#log = log;
    this.#beats = new Rounds(times.heartbeatMs, () => this.#beat());
  }

  isMember(): boolean {
    if (this.#life === null) return false;
    if (performance.now() < this.#validUntilMs) return true;
    this.#lose('no heartbeat reached the database in time');
    return false;
  }

  /** The life that goes on, null when there is none. */
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

  /** The first life of this process, which ends that of any other with this node's id. */
  async join(): Promise<void> {
    await this.#join();
    if (this.#life === null) throw unavailable(`another process lives as the node "${this.#self.id}"`);
    await this.refresh();
    this.#beats.start();
  }

  /**
   * Another process that lives as this node, to be asked before the first life: its life goes on to be prolonged. That of one that died does not, so
   * that a node which starts again after a crash waits no longer than for a heartbeat.
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

  /** Lives on, and is given no more leases, in later lives too. */
  async retire(): Promise<void> {
    this.#isRetired = true;
    const life = this.life();
    if (life === null) return;
    await this.#tell(transaction => retireNode(transaction, life));
    await this.refresh();
  }

  async leave(): Promise<void> {
    this.#isLeaving = true;
    await this.#beats.close();
    const life = this.#life;
    clearTimeout(this.#expiry);
    this.#life = null;
    if (life !== null) await this.#tell(transaction => endNode(transaction, life));
  }

  async #beat(): Promise<void> {
    try {
      const life = this.life();
      if (life === null) await this.#join();
      else {
        const sentMs = performance.now();
        if (await prolongNode(this.#database.database, life, this.#times.ttlMs)) this.#prolong(life, sentMs);
        else this.#lose('the database says that this life is over');
      }
      // At once: others have begun to take over.
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
    const epoch = await this.#tell(transaction => joinNode(transaction, self, this.#times.ttlMs, this.#lastEpoch));
    if (epoch === null) {
      this.#report(`another process lives as the node "${this.#self.id}"; this one waits until it has gone`);
      return;
    }
    this.#lastEpoch = epoch;
    this.#life = { nodeId: self.id, nodeEpoch: epoch };
    this.#joinedMs = sentMs;
    this.#prolong(this.#life, sentMs);
    this.#log.info({ nodeId: self.id, epoch }, 'joined the cluster');
  }

  #prolong(life: NodeLife, sentMs: number): void {
    // This life may have ended while the answer was under way: it stays ended.
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
    this.#log.warn({ nodeId: life.nodeId, epoch: life.nodeEpoch, why }, 'lost the place in the cluster');
    this.#events.lost();
  }

  /** What changes nodes, so that others look at once. */
  #tell<R>(work: (transaction: Parameters<typeof endNode>[0]) => Promise<R>): Promise<R> {
    return this.#database.transact(async transaction => {
      const result = await work(transaction);
      await publish(transaction, TOPIC_NODES, this.#self.id);
      return result;
    });
  }

  #report(problem: string): void {
    if (this.#problem !== problem)
      this.#log.warn({ problem }, 'the heartbeat of this replica failed; it is tried again');
    this.#problem = problem;
  }

  #solved(): void {
    if (this.#problem !== null) this.#log.info({}, 'the heartbeat of this replica goes well again');
    this.#problem = null;
  }
}

import { messageOf } from '../core/error.ts';
import { SHARD_NAMES } from '../core/shard.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { ClusterDatabase } from '../storage/cluster-database.ts';
import { publish } from '../storage/feed.ts';
import { type Lease, listLeases, passLease, TOPIC_LEASES, takeLeases } from '../storage/leases.ts';
import { fenced } from '../storage/nodes.ts';
import { planMoves } from './balance.ts';
import type {
  ClusterLog,
  LeaseChange,
  LeaseFence,
  LeaseName,
  LeaseOwner,
  LivingNode,
  NodeLife,
  Shards,
} from './contract.ts';
import type { NodeMembership } from './membership.ts';

export interface ShardTimes {
  /** How long an owner may take to let go of a lease. */
  readonly releaseWaitMs: number;
  /** How soon what could not be taken is tried again. */
  readonly retryMs: number;
  /** Leases that are handed over at one time, but when this node goes: then all are. */
  readonly maxReleasing: number;
}

interface Held {
  readonly fence: LeaseFence;
  /** False: `onAcquired` was never called, since this node stops; the lease is only passed on. */
  readonly isTold: boolean;
  isReleasing: boolean;
}

/** Replicas with this role run functions and jobs. */
const WORKER = 'worker';
const PASS_AGAIN = { firstMs: 50, longestMs: 1000 };

/**
 * The leases of this node. All replicas read the same rows and make the same plan (`balance.ts`); each takes and gives what is its part of it.
 * The rows decide: the state in memory is for speed, and every write under a lease is fenced.
 */
export class NodeShards implements Shards {
  readonly #database: ClusterDatabase;
  readonly #membership: NodeMembership;
  readonly #times: ShardTimes;
  readonly #log: ClusterLog;
  readonly changes: Record<LeaseChange, number> = { acquired: 0, released: 0, lost: 0 };
  readonly #held = new Map<LeaseName, Held>();
  readonly #releases = new Set<Promise<void>>();
  /** By name, the newest that is known: a row that was read before a change here is not believed any more. */
  readonly #epochs = new Map<LeaseName, number>();
  #owners = new Map<LeaseName, LivingNode>();
  #moves = new Map<string, string>();
  #owner: LeaseOwner | null = null;
  #round: Promise<void> | null = null;
  #isAsked = false;
  #isRetired = false;
  #isClosed = false;
  #retry: NodeJS.Timeout | undefined;
  #problem: string | null = null;

  constructor(
    database: ClusterDatabase,
    membership: NodeMembership,
    { times, log }: { readonly times: ShardTimes; readonly log: ClusterLog },
  ) {
    this.#database = database;
    this.#membership = membership;
    this.#times = times;
    this.#log = log;
  }

  holds(name: LeaseName): boolean {
    // In this order: a loss that is only seen now drops what was held.
    return this.#membership.isMember() && this.#held.has(name);
  }

  fence(name: LeaseName): LeaseFence {
    const held = this.holds(name) ? this.#held.get(name) : undefined;
    if (held === undefined) throw fenced(`this replica does not own "${name}": nothing was written`);
    return held.fence;
  }

  ownerOf(name: LeaseName): LivingNode | null {
    return this.#owners.get(name) ?? null;
  }

  /** How many of each kind are held. */
  count(): Readonly<Record<'shard' | 'jobs' | 'sweeper', number>> {
    const counts = { shard: 0, jobs: 0, sweeper: 0 };
    if (!this.#membership.isMember()) return counts;
    for (const name of this.#held.keys()) counts[name === 'jobs' || name === 'sweeper' ? name : 'shard'] += 1;
    return counts;
  }

  own(owner: LeaseOwner): void {
    this.#owner = owner;
    this.look();
  }

  /** Looks at the leases soon, once for all who ask until it begins. */
  look(): void {
    if (this.#isClosed) return;
    this.#isAsked = true;
    this.#round ??= this.#rounds().finally(() => {
      this.#round = null;
    });
  }

  /** The life of this node is over. */
  drop(): void {
    for (const name of [...this.#held.keys()]) this.#lose(name);
  }

  /** The database may have gone back: its rows count now, and the known epochs do not. */
  forget(): void {
    this.#epochs.clear();
    this.look();
  }

  /** Gives everything away, as the life has been retired; resolves when nothing is held. */
  async retire(): Promise<void> {
    this.#isRetired = true;
    await this.#lookNow();
    await Promise.all(this.#releases);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    await this.#round;
    await Promise.all(this.#releases);
  }

  async #lookNow(): Promise<void> {
    this.look();
    await this.#round;
  }

  async #rounds(): Promise<void> {
    while (this.#isAsked && !this.#isClosed) {
      this.#isAsked = false;
      clearTimeout(this.#retry);
      try {
        const isDone = await this.#look();
        this.#problem = null;
        if (!isDone) this.#again();
      } catch (error) {
        const problem = messageOf(error);
        if (this.#problem !== problem)
          this.#log.warn({ problem }, 'the leases could not be looked at; it is tried again');
        this.#problem = problem;
        this.#again();
      }
    }
  }

  #again(): void {
    if (!this.#isClosed) this.#retry = setTimeout(() => this.look(), this.#times.retryMs).unref();
  }

  /** False: something that this node is to take could not be taken yet. */
  async #look(): Promise<boolean> {
    const leases = await listLeases(this.#database.database);
    const living = this.#membership.living();
    const known = leases.filter(({ name, epoch }) => epoch >= (this.#epochs.get(name as LeaseName) ?? 0));
    this.#learn(known, living);
    const life = this.#membership.life();
    if (life === null || this.#owner === null) return true;
    this.#settle(known, life);
    this.#moves = planAll(leases, living);
    this.#release(life);
    return await this.#take(leases, life);
  }

  #learn(leases: readonly Lease[], living: readonly LivingNode[]): void {
    const nodes = new Map(living.map(node => [node.id, node]));
    for (const { name, epoch, holder } of leases) {
      this.#epochs.set(name as LeaseName, epoch);
      const node = holder === null ? undefined : nodes.get(holder.nodeId);
      if (node === undefined) this.#owners.delete(name as LeaseName);
      else this.#owners.set(name as LeaseName, node);
    }
  }

  /** This node owns exactly the leases that the rows say: the answer to a take may have been lost, or another node gave one. */
  #settle(leases: readonly Lease[], life: NodeLife): void {
    for (const { name, epoch, holder } of leases) {
      const held = this.#held.get(name as LeaseName);
      const isOurs = holder?.nodeId === life.nodeId && holder.nodeEpoch === life.nodeEpoch;
      if (held !== undefined && !(isOurs && held.fence.epoch === epoch)) {
        // It was just passed on, and its answer is on the way.
        if (held.isReleasing && epoch === held.fence.epoch + 1) continue;
        this.#lose(name as LeaseName);
      }
      if (isOurs) this.#acquire(name as LeaseName, epoch, life);
    }
  }

  async #take(leases: readonly Lease[], life: NodeLife): Promise<boolean> {
    const wanted = leases.filter(({ name, holder }) => holder === null && this.#moves.get(name) === life.nodeId);
    if (wanted.length === 0) return true;
    const taken = await this.#database.transact(async transaction => {
      const got = await takeLeases(transaction, life, wanted);
      if (got.length > 0) await publish(transaction, TOPIC_LEASES, this.#database.nodeId);
      return got;
    });
    const self = this.#membership.living().find(({ id }) => id === life.nodeId);
    for (const { name, epoch } of taken) {
      this.#epochs.set(name as LeaseName, epoch);
      if (self !== undefined) this.#owners.set(name as LeaseName, self);
      // The life may be over by now.
      if (this.#membership.life() === life) this.#acquire(name as LeaseName, epoch, life);
    }
    return taken.length === wanted.length;
  }

  #release(life: NodeLife): void {
    for (const [name, held] of this.#held) {
      const goesTo = this.#moves.get(name);
      const goes = this.#isRetired || (goesTo !== undefined && goesTo !== life.nodeId);
      if (!goes || held.isReleasing) continue;
      if (!this.#isRetired && this.#releases.size >= this.#times.maxReleasing) return;
      held.isReleasing = true;
      const release = this.#handOver(name, held).finally(() => {
        this.#releases.delete(release);
        this.look();
      });
      this.#releases.add(release);
    }
  }

  async #handOver(name: LeaseName, held: Held): Promise<void> {
    const letGo = (held.isTold && this.#owner?.onReleasing(name)) || Promise.resolve();
    const isInTime = await endsWithin(letGo, this.#times.releaseWaitMs).catch(() => false);
    if (!isInTime) this.#log.warn({ lease: name }, 'a lease is handed over though its work has not ended');
    for (let tries = 1; this.#held.get(name) === held && this.#membership.isMember(); tries++) {
      const to = this.#receiver(name);
      try {
        const isPassed = await this.#database.transact(async transaction => {
          const passed = await passLease(transaction, held.fence, to);
          if (passed) await publish(transaction, TOPIC_LEASES, this.#database.nodeId);
          return passed;
        });
        if (this.#held.get(name) !== held) return;
        if (!isPassed) {
          this.#lose(name);
          return;
        }
        this.#held.delete(name);
        this.#epochs.set(name, held.fence.epoch + 1);
        const node = this.#membership.living().find(({ id }) => id === to?.nodeId);
        if (node === undefined) this.#owners.delete(name);
        else this.#owners.set(name, node);
        this.changes.released += 1;
        return;
      } catch (error) {
        this.#log.warn(
          { lease: name, problem: messageOf(error) },
          'a lease could not be handed over; it is tried again',
        );
        await pause(backoffMs(PASS_AGAIN, tries));
      }
    }
  }

  /** Whom the plan gives it; nobody when that is this node again, which takes it anew then. */
  #receiver(name: LeaseName): NodeLife | null {
    const id = this.#moves.get(name);
    const node = this.#membership.living().find(each => each.id === id);
    if (node === undefined || node.id === this.#database.nodeId) return null;
    return { nodeId: node.id, nodeEpoch: node.epoch };
  }

  #acquire(name: LeaseName, epoch: number, life: NodeLife): void {
    if (this.#held.has(name)) return;
    const isTold = !this.#isRetired;
    this.#held.set(name, { fence: { ...life, name, epoch }, isTold, isReleasing: false });
    this.changes.acquired += 1;
    if (isTold) this.#owner?.onAcquired(name, epoch);
  }

  #lose(name: LeaseName): void {
    const held = this.#held.get(name);
    if (held === undefined) return;
    this.#held.delete(name);
    this.changes.lost += 1;
    if (held.isTold) this.#owner?.onLost(name);
  }
}

/** Shards are balanced; the two others go to different workers where there are several. */
function planAll(leases: readonly Lease[], living: readonly LivingNode[]): Map<string, string> {
  const workers = living.filter(({ roles }) => roles.includes(WORKER)).map(({ id }) => id);
  const holdings = leases.map(({ name, holder }) => ({ name, nodeId: holder?.nodeId ?? null }));
  const moves = planMoves(
    holdings.filter(({ name }) => isShard(name)),
    workers,
  );
  const able = living.filter(({ roles }) => roles.length > 0).map(({ id }) => id);
  // What a lost node had in pods goes to the sweeper, who looks after it then: a worker, as long as there is one.
  const sweepers = workers.length > 0 ? workers : able;
  for (const [name, candidates] of [
    ['jobs', workers],
    ['sweeper', sweepers.toReversed()],
  ] as const) {
    const holding = holdings.find(each => each.name === name);
    const first = candidates[0];
    if (holding === undefined || first === undefined) continue;
    if (holding.nodeId === null || !candidates.includes(holding.nodeId)) moves.set(name, first);
  }
  return moves;
}

const SHARDS: ReadonlySet<string> = new Set(SHARD_NAMES);

function isShard(name: string): boolean {
  return SHARDS.has(name);
}

import { messageOf } from '../core/error.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import type { ClusterDatabase } from '../storage/postgres/cluster-database.ts';
import { publish } from '../storage/queries/feed.ts';
import { type LeaseRecord, listLeases, passLease, TOPIC_LEASES, takeLeases } from '../storage/queries/leases.ts';
import { fenced } from '../storage/queries/nodes.ts';
import type { LeaseChange, LeaseFence, LeaseName, LeaseOwner, LivingNode, NodeLife, Shards } from './contract.ts';
import type { NodeMembership } from './membership.ts';

export interface ShardTimes {
  /** Time that an owner may take to release a lease, milliseconds. */
  readonly releaseWaitMs: number;
  /** Pause before leases that could not be taken are tried again, milliseconds. */
  readonly retryMs: number;
  /** Maximum number of concurrent transfers. A node that ends transfers all leases at once. */
  readonly maxReleasing: number;
}

interface HeldShard {
  readonly fence: LeaseFence;
  /** False: `onAcquired` was never called because this node stops. The lease is only passed on. */
  readonly isTold: boolean;
  isReleasing: boolean;
}

/** Role of replicas that run functions and jobs. */
const WORKER = 'worker';
const PASS_AGAIN = { firstMs: 50, longestMs: 1000 };

/**
 * Manages the leases of this node. All replicas read the same records and compute the same plan
 * (`balance.ts`). Each takes and releases its part of it. The records are authoritative. The state in memory
 * is for speed, and every write under a lease is fenced.
 */
export class NodeShards implements Shards {
  readonly #database: ClusterDatabase;
  readonly #membership: NodeMembership;
  readonly #times: ShardTimes;
  readonly #log: Log;
  readonly changes: Record<LeaseChange, number> = { acquired: 0, released: 0, lost: 0 };
  readonly #held = new Map<LeaseName, HeldShard>();
  readonly #releases = new Set<Promise<void>>();
  /** Newest known epoch by lease. A record that was read before a change here is ignored. */
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
    { times, log }: { readonly times: ShardTimes; readonly log: Log },
  ) {
    this.#database = database;
    this.#membership = membership;
    this.#times = times;
    this.#log = log;
  }

  holds(name: LeaseName): boolean {
    // `isMember` comes first: a loss that it detects drops the held leases.
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

  /** Returns how many leases of each kind are held. */
  count(): Readonly<Record<'shard' | 'jobs' | 'sweeper', number>> {
    const counts = { shard: 0, jobs: 0, sweeper: 0 };
    if (!this.#membership.isMember()) return counts;
    for (const name of this.#held.keys()) counts[name === 'jobs' || name === 'sweeper' ? name : 'shard'] += 1;
    return counts;
  }

  own(owner: LeaseOwner): void {
    this.#owner = owner;
    this.reconcileSoon();
  }

  /** Requests a pass over the leases. Requests until its beginning share it. */
  reconcileSoon(): void {
    if (this.#isClosed) return;
    this.#isAsked = true;
    this.#round ??= this.#rounds().finally(() => {
      this.#round = null;
    });
  }

  /** Drops all leases, because the life of this node is over. */
  drop(): void {
    for (const name of [...this.#held.keys()]) this.#lose(name);
  }

  /**
   * Drops the known epochs, because the database may have lost writes. Its records are then authoritative.
   */
  forget(): void {
    this.#epochs.clear();
    this.reconcileSoon();
  }

  /** Transfers all leases after the life was retired. Resolves when none is held. */
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
    this.reconcileSoon();
    await this.#round;
  }

  async #rounds(): Promise<void> {
    while (this.#isAsked && !this.#isClosed) {
      this.#isAsked = false;
      clearTimeout(this.#retry);
      try {
        const isDone = await this.#reconcile();
        this.#problem = null;
        if (!isDone) this.#again();
      } catch (error) {
        const problem = messageOf(error);
        if (this.#problem !== problem) this.#log.warn({ problem }, 'cannot read leases; retrying');
        this.#problem = problem;
        this.#again();
      }
    }
  }

  #again(): void {
    if (!this.#isClosed) this.#retry = setTimeout(() => this.reconcileSoon(), this.#times.retryMs).unref();
  }

  /** Runs one pass. Returns false when a lease that this node should take could not be taken yet. */
  async #reconcile(): Promise<boolean> {
    const leases = await listLeases(this.#database.database);
    const living = this.#membership.living();
    const known = leases.filter(({ name, epoch }) => epoch >= (this.#epochs.get(name as LeaseName) ?? 0));
    this.#learn(known, living);
    const life = this.#membership.life();
    if (life === null || this.#owner === null) return true;
    this.#applyLeases(known, life);
    this.#moves = planAll(leases, living);
    this.#release(life);
    return await this.#acquireLeases(leases, life);
  }

  #learn(leases: readonly LeaseRecord[], living: readonly LivingNode[]): void {
    const nodes = new Map(living.map(node => [node.id, node]));
    for (const { name, epoch, holder } of leases) {
      this.#epochs.set(name as LeaseName, epoch);
      const node = holder === null ? undefined : nodes.get(holder.nodeId);
      if (node === undefined) this.#owners.delete(name as LeaseName);
      else this.#owners.set(name as LeaseName, node);
    }
  }

  /**
   * Makes the held leases match the records. The answer to a take may have been lost, or another node may
   * have passed a lease here.
   */
  #applyLeases(leases: readonly LeaseRecord[], life: NodeLife): void {
    for (const { name, epoch, holder } of leases) {
      const held = this.#held.get(name as LeaseName);
      const isOurs = holder?.nodeId === life.nodeId && holder.nodeEpoch === life.nodeEpoch;
      if (held !== undefined && !(isOurs && held.fence.epoch === epoch)) {
        // The lease was just passed on, and the answer of that write is on its way.
        if (held.isReleasing && epoch === held.fence.epoch + 1) continue;
        this.#lose(name as LeaseName);
      }
      if (isOurs) this.#acquire(name as LeaseName, epoch, life);
    }
  }

  async #acquireLeases(leases: readonly LeaseRecord[], life: NodeLife): Promise<boolean> {
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
        this.reconcileSoon();
      });
      this.#releases.add(release);
    }
  }

  async #handOver(name: LeaseName, held: HeldShard): Promise<void> {
    const letGo = (held.isTold && this.#owner?.onReleasing(name)) || Promise.resolve();
    const isInTime = await endsWithin(letGo, this.#times.releaseWaitMs).catch(() => false);
    if (!isInTime) this.#log.warn({ lease: name }, 'transferring lease before its work has ended');
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
        this.#log.warn({ lease: name, problem: messageOf(error) }, 'lease transfer failed; retrying');
        await pause(backoffMs(PASS_AGAIN, tries));
      }
    }
  }

  /**
   * Returns the node that the plan gives the lease; null when that is this node, which then takes it again.
   */
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

/**
 * Plans the moves of all leases. Shards are balanced; the two other leases go to different workers if
 * possible.
 */
function planAll(leases: readonly LeaseRecord[], living: readonly LivingNode[]): Map<string, string> {
  const workers = living.filter(({ roles }) => roles.includes(WORKER)).map(({ id }) => id);
  const holdings = leases.map(({ name, holder }) => ({ name, nodeId: holder?.nodeId ?? null }));
  const moves = planMoves(
    holdings.filter(({ name }) => isShard(name)),
    workers,
  );
  const able = living.filter(({ roles }) => roles.length > 0).map(({ id }) => id);
  // The sweeper takes over the pods of lost nodes and then manages them. It is therefore a worker if one
  // exists.
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

/** Lease and the node that holds it. */
export interface Holding {
  readonly name: string;
  /** Living node that holds the lease; null: none does. */
  readonly nodeId: string | null;
}

/**
 * Returns which of `holdings` must move to which of `workers`: as few as possible, until shares differ by at
 * most one. All replicas compute the same moves from the same records, without talking to each other. The
 * owner releases a lease that moves, and its new owner takes a free one. Without workers nothing moves.
 */
export function planMoves(holdings: readonly Holding[], workers: readonly string[]): Map<string, string> {
  const moves = new Map<string, string>();
  if (workers.length === 0) return moves;
  const owned = new Map<string, string[]>(workers.map(id => [id, []]));
  const homeless: string[] = [];
  for (const { name, nodeId } of [...holdings].sort(byName)) {
    ((nodeId === null ? undefined : owned.get(nodeId)) ?? homeless).push(name);
  }
  const share = Math.floor(holdings.length / workers.length);
  // The workers with the most leases get the larger shares.
  let larger = holdings.length % workers.length;
  const byCount = [...owned].sort(([a, one], [b, other]) => other.length - one.length || (a < b ? -1 : 1));
  const room: [id: string, count: number][] = [];
  for (const [id, names] of byCount) {
    const target = share + (larger-- > 0 ? 1 : 0);
    homeless.push(...names.slice(target));
    if (names.length < target) room.push([id, target - names.length]);
  }
  let at = 0;
  for (const [id, count] of room) {
    for (const name of homeless.slice(at, at + count)) moves.set(name, id);
    at += count;
  }
  return moves;
}

function byName(one: Holding, other: Holding): number {
  return one.name < other.name ? -1 : 1;
}

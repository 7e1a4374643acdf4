import { messageOf } from '../core/error.ts';
import { CLUSTER_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import {
  type GivenUp,
  giveUpNode,
  type Heir,
  inheritPods,
  listAwaitedNodes,
  listNodesOfLostPods,
  listOwningNodes,
  type PodWait,
} from '../storage/queries/lost-nodes.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { Membership, Shards } from './contract.ts';

export interface LostNodesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly shards: Pick<Shards, 'holds' | 'fence'>;
  readonly membership: Pick<Membership, 'living' | 'livesForMs'>;
  readonly nodeId: string;
  /** Time after which a dead node is given up, from when this one could have seen it, milliseconds. */
  readonly lostMs: number;
  /**
   * Time after which instances in pods get a new owner, milliseconds. They continue to run without their
   * node.
   */
  readonly podsLostMs: number;
  /** Called after the work of a lost node was given up or taken over by this one. */
  readonly onGivenUp: (all: Pick<GivenUp, 'jobsFailed'>) => void;
  readonly log: Log;
}

const LOOK_MS = 5_000;
/**
 * Interval of the passes over pods. Short, because calls of agents in pods wait for the new owner
 * (`FORWARD_WAIT_MS`, 15 s).
 */
const PODS_LOOK_MS = 500;
/**
 * Time that a replica which ended itself gets to restart, so that a rolling restart moves few pods. Calls
 * wait 15 s.
 */
const RESTART_MS = 10_000;
/**
 * While the database is unavailable every life expires. Afterwards each replica joins again within its life
 * (8 s) and a heartbeat (2 s).
 */
const REJOIN_MS = 10_000;
const LOST = 'The node that ran it is lost.';

/**
 * Finds nodes that have been dead for too long. The sweeper takes over instances that run without their node,
 * and gives up the others.
 */
export class LostNodes {
  readonly #options: LostNodesOptions;
  readonly #interval: Interval;
  readonly #podInterval: Interval;
  #lost: ReadonlySet<string> = new Set();

  constructor(options: LostNodesOptions) {
    this.#options = options;
    this.#interval = new Interval(Math.min(LOOK_MS, options.lostMs), () => this.#reconcile());
    this.#podInterval = new Interval(PODS_LOOK_MS, () => this.#inheritPods());
  }

  async start(): Promise<void> {
    await this.#inheritPods();
    await this.#reconcile();
    this.#podInterval.start();
    this.#interval.start();
  }

  async close(): Promise<void> {
    await Promise.all([this.#podInterval.close(), this.#interval.close()]);
  }

  /**
   * Returns true if the node was lost at the last pass and has not returned since. A node that joined after
   * the pass is not lost.
   */
  isLost(nodeId: string): boolean {
    return this.#lost.has(nodeId) && !this.#options.membership.living().some(({ id }) => id === nodeId);
  }

  /** Runs one pass over lost nodes. Never rejects. */
  async #reconcile(): Promise<void> {
    const { database, membership, lostMs, log } = this.#options;
    try {
      // Only time counts in which the others could prolong their lives: none can while the database is
      // unavailable.
      if (membership.livesForMs() < lostMs) {
        this.#lost = new Set();
        return;
      }
      // The owning nodes are read first. Each has joined before, so the second read contains it unless it
      // died long ago.
      const owning = await listOwningNodes(database);
      const awaited = new Set(await listAwaitedNodes(database, lostMs));
      this.#lost = new Set(owning.filter(nodeId => !awaited.has(nodeId)));
      if (!this.#options.shards.holds('sweeper')) return;
      for (const nodeId of this.#lost) await this.#giveUp(nodeId);
    } catch (error) {
      log.warn({ problem: messageOf(error) }, 'cannot read lost nodes; retrying');
    }
  }

  /** Takes over the pods of lost nodes. Never rejects. */
  async #inheritPods(): Promise<void> {
    const { database, writes, shards, membership, podsLostMs, log, onGivenUp } = this.#options;
    if (membership.livesForMs() < Math.max(REJOIN_MS, podsLostMs) || !shards.holds('sweeper')) return;
    const heir = this.#heir;
    const wait: PodWait = { lostMs: podsLostMs, endedMs: Math.max(RESTART_MS, podsLostMs) };
    try {
      for (const nodeId of await listNodesOfLostPods(database, wait, heir.sandboxTypes)) {
        const inherited = await writes.write(inheritPods, shards.fence('sweeper'), nodeId, heir, wait);
        if (inherited === 0) continue;
        log.warn({ nodeId, inherited }, 'replica lost; its pods are taken over');
        onGivenUp({ jobsFailed: 0 });
      }
    } catch (error) {
      log.warn({ problem: messageOf(error) }, 'cannot list pods of lost replicas; retrying');
    }
  }

  get #heir(): Heir {
    return { nodeId: this.#options.nodeId, sandboxTypes: CLUSTER_SANDBOX_TYPES };
  }

  async #giveUp(nodeId: string): Promise<void> {
    const { writes, shards, lostMs, log, onGivenUp } = this.#options;
    const fence = shards.fence('sweeper');
    const all = await writes.write(giveUpNode, fence, nodeId, this.#heir, lostMs, LOST, Date.now());
    const { inherited, givenUp } = all;
    if (inherited + givenUp === 0) return;
    log.warn(
      { nodeId, inherited, givenUp },
      'node is lost; taking over its pods, giving up its other instances and jobs',
    );
    onGivenUp(all);
  }
}

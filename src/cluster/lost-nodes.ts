import { messageOf } from '../core/error.ts';
import { CLUSTER_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import { Rounds } from '../lib/rounds.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { type GivenUp, giveUpNode, listAwaitedNodes, listOwningNodes } from '../storage/lost-nodes.ts';
import type { ClusterLog, Membership, Shards } from './contract.ts';

export interface LostNodesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly shards: Pick<Shards, 'holds' | 'fence'>;
  readonly membership: Pick<Membership, 'living' | 'livesForMs'>;
  readonly nodeId: string;
  /** How long a dead node is waited for, from when this one could have seen it. */
  readonly lostMs: number;
  /** What a lost node had has been given up, or is looked after by this one from now on. */
  readonly onGivenUp: (all: Pick<GivenUp, 'jobsFailed'>) => void;
  readonly log: ClusterLog;
}

const LOOK_MS = 5_000;
const LOST = 'The node that ran it is lost.';

/** Nodes that have been dead for so long that nobody waits for them: the sweeper takes over what lives on without them, and gives up the rest. */
export class LostNodes {
  readonly #options: LostNodesOptions;
  readonly #rounds: Rounds;
  #lost: ReadonlySet<string> = new Set();

  constructor(options: LostNodesOptions) {
    this.#options = options;
    this.#rounds = new Rounds(Math.min(LOOK_MS, options.lostMs), () => this.#look());
  }

  async start(): Promise<void> {
    await this.#look();
    this.#rounds.start();
  }

  close(): Promise<void> {
    return this.#rounds.close();
  }

  /** As of the last look, and not when it has come back since. A node that joined after it is not lost. */
  isLost(nodeId: string): boolean {
    return this.#lost.has(nodeId) && !this.#options.membership.living().some(({ id }) => id === nodeId);
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    const { database, shards, membership, lostMs, log } = this.#options;
    // Only time counts in which the others could have told that they live: while the database is away nobody can.
    if (membership.livesForMs() < lostMs) {
      this.#lost = new Set();
      return;
    }
    try {
      // In this order: a node that owns something has joined before, so that it is awaited unless it died long ago.
      const owning = await listOwningNodes(database);
      const awaited = new Set(await listAwaitedNodes(database, lostMs));
      this.#lost = new Set(owning.filter(nodeId => !awaited.has(nodeId)));
      if (!shards.holds('sweeper')) return;
      for (const nodeId of this.#lost) await this.#giveUp(nodeId);
    } catch (error) {
      log.warn({ problem: messageOf(error) }, 'nodes that are lost could not be looked for; it is tried again');
    }
  }

  async #giveUp(nodeId: string): Promise<void> {
    const { writes, shards, lostMs, log, onGivenUp } = this.#options;
    const fence = shards.fence('sweeper');
    const heir = { nodeId: this.#options.nodeId, sandboxTypes: CLUSTER_SANDBOX_TYPES };
    const all = await writes.write(giveUpNode, fence, nodeId, heir, lostMs, LOST, Date.now());
    const { inherited, givenUp } = all;
    if (inherited + givenUp === 0) return;
    log.warn(
      { nodeId, inherited, givenUp },
      'a node is lost: this one looks after its pods, and its other instances and jobs are given up',
    );
    onGivenUp(all);
  }
}

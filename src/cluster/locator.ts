import { LRUCache } from 'lru-cache';
import { unavailable } from '../core/error.ts';
import { type ShardName, shardOf } from '../core/lease.ts';
import type { Locator, PeerAddress, Target } from '../http/forwarding.ts';
import type { Thing } from '../http/route-config.ts';
import { pause } from '../lib/backoff.ts';
import type { LivingNode, Membership, Shards } from './contract.ts';

export interface LocatorOptions {
  /** Node id and address of this replica. */
  readonly self: PeerAddress;
  /** True if agents and jobs run here. */
  readonly isWorker: boolean;
  readonly membership: Pick<Membership, 'living'>;
  readonly shards: Pick<Shards, 'ownerOf'>;
  /**
   * Returns true if the instance takes calls in this process. The only look-up that every call of an agent
   * pays for.
   */
  readonly isLive: (instanceId: string) => boolean;
  /** Returns true if the functions of a shard are served here now. */
  readonly isServed: (shard: string) => boolean;
  /** Returns the node of an instance from the database; null: the instance does not exist. */
  readonly nodeOfInstance: (id: string) => Promise<string | null>;
  /** Returns the node that must serve the request; null: any node can. The node of a job may change. */
  readonly nodeOfJob: (tenant: string, id: string, what: 'log' | 'stop') => Promise<string | null>;
  /** Returns true if the node was given up. Only the database then still knows its instances and jobs. */
  readonly isLost: (nodeId: string) => boolean;
  /**
   * Time that a request waits for an owner while a replica restarts or a shard is transferred, milliseconds.
   */
  readonly waitMs: number;
}

const MAX_REMEMBERED = 100_000;
/** Interval at which an owner is looked up again, milliseconds. */
const LOOK_MS = 50;
/** Interval at which the record of an instance is read again while its replica is dead. */
const ROW_LOOK_MS = 1000;
/** Time in which an unreachable replica may be recognized as dead. */
const SETTLE_MS = 200;

/**
 * Finds the replica of an instance, job or function. The record of an instance names its node, and that of a
 * job the node that runs it. A function belongs to the owner of its shard. For instances of this node the
 * look-up is one access to a map. Requests wait while no owner exists, so that no call fails in a rolling
 * restart.
 */
export class NodeLocator implements Locator {
  readonly #options: LocatorOptions;
  /**
   * Nodes of instances. An instance moves only when its node is lost. An entry is valid while the node lives
   * in the same epoch.
   */
  readonly #nodes = new LRUCache<string, Pick<LivingNode, 'id' | 'epoch'>>({ max: MAX_REMEMBERED });

  constructor(options: LocatorOptions) {
    this.#options = options;
  }

  locate(thing: Thing, key: string, tenant: string): Target | Promise<Target> {
    if (thing === 'worker') return this.#locateWorker();
    if (thing === 'function') return this.#locateFunction(shardOf(key));
    if (thing === 'job' || thing === 'job-log') return this.#locateJob(thing, key, tenant);
    if (this.#options.isLive(key)) return null;
    const known = this.#nodes.get(key);
    const living = known === undefined ? undefined : this.#living(known.id);
    if (living !== undefined && living.epoch === known?.epoch) return this.#targetOf(living);
    return this.#locateInstance(key);
  }

  async refresh(thing: Thing, key: string, tenant: string): Promise<PeerAddress> {
    this.#nodes.delete(key);
    await pause(SETTLE_MS);
    return (await this.locate(thing, key, tenant)) ?? this.#options.self;
  }

  #locateWorker(): Target | Promise<Target> {
    const look = () => {
      const workers = this.#options.membership.living().filter(({ roles }) => roles.includes('worker'));
      const worker = workers[Math.floor(Math.random() * workers.length)];
      return worker && this.#targetOf(worker);
    };
    if (this.#options.isWorker) return null;
    return this.#waitFor(look, () => unavailable('no replica with the role worker lives', { retryAfterSeconds: 1 }));
  }

  #locateFunction(shard: ShardName): Target | Promise<Target> {
    const { shards, isServed, self } = this.#options;
    if (isServed(shard)) return null;
    const owner = shards.ownerOf(shard);
    if (owner !== null && owner.id !== self.nodeId) return this.#targetOf(owner);
    return this.#waitFor(
      () => {
        if (isServed(shard)) return null;
        const now = shards.ownerOf(shard);
        return now === null || now.id === self.nodeId ? undefined : this.#targetOf(now);
      },
      () => unavailable('no replica serves the function at the moment', { retryAfterSeconds: 1 }),
    );
  }

  async #locateJob(thing: 'job' | 'job-log', id: string, tenant: string): Promise<Target> {
    const nodeId = await this.#options.nodeOfJob(tenant, id, thing === 'job' ? 'stop' : 'log');
    return nodeId === null || this.#options.isLost(nodeId) ? null : await this.#awaitNode(nodeId);
  }

  async #locateInstance(id: string): Promise<Target> {
    const { self, isLost, nodeOfInstance, waitMs } = this.#options;
    const untilMs = performance.now() + waitMs;
    for (;;) {
      const nodeId = await nodeOfInstance(id);
      if (nodeId === null || nodeId === self.nodeId || isLost(nodeId)) return null;
      const look = () => this.#living(nodeId);
      const node = await pollUntil(look, Math.min(untilMs, performance.now() + ROW_LOOK_MS));
      if (node !== undefined) {
        this.#nodes.set(id, { id: nodeId, epoch: node.epoch });
        return this.#targetOf(node);
      }
      if (performance.now() >= untilMs) throw noAnswerOf(nodeId);
      // Another replica may have taken over the instance meanwhile.
    }
  }

  #awaitNode(nodeId: string): Promise<Target> {
    const look = () => {
      const node = this.#living(nodeId);
      return node && this.#targetOf(node);
    };
    return this.#waitFor(look, () => noAnswerOf(nodeId));
  }

  #living(nodeId: string): LivingNode | undefined {
    // A node without roles is about to end. It takes no new requests; those for its instances wait for its
    // return.
    return this.#options.membership.living().find(({ id, roles }) => id === nodeId && roles.length > 0);
  }

  #targetOf({ id, advertise }: LivingNode): Target {
    return id === this.#options.self.nodeId ? null : { nodeId: id, address: advertise };
  }

  /** Returns the first defined result of `look` within `waitMs`; otherwise throws `failure`. */
  async #waitFor(look: () => Target | undefined, failure: () => Error): Promise<Target> {
    const found = await pollUntil(look, performance.now() + this.#options.waitMs);
    if (found === undefined) throw failure();
    return found;
  }
}

function noAnswerOf(nodeId: string): Error {
  return unavailable(`the replica that has it (${nodeId}) does not answer`, { retryAfterSeconds: 1 });
}

/**
 * Returns the first defined result of `look`; undefined when there was none until `untilMs`. Calls `look` at
 * least once.
 */
async function pollUntil<T>(look: () => T | undefined, untilMs: number): Promise<T | undefined> {
  for (;;) {
    const found = look();
    if (found !== undefined || performance.now() >= untilMs) return found;
    await pause(LOOK_MS);
  }
}

import { LRUCache } from 'lru-cache';
import { unavailable } from '../core/error.ts';
import { type ShardName, shardOf } from '../core/shard.ts';
import type { Locator, Replica, Target } from '../http/forwarding.ts';
import type { Thing } from '../http/lives-with.ts';
import { pause } from '../lib/backoff.ts';
import type { LivingNode, Membership, Shards } from './contract.ts';

export interface LocatorOptions {
  /** This replica. */
  readonly self: Replica;
  /** Whether agents and jobs run here. */
  readonly isWorker: boolean;
  readonly membership: Pick<Membership, 'living'>;
  readonly shards: Pick<Shards, 'ownerOf'>;
  /** Whether the instance takes calls in this process: the one question that each call of an agent pays for. */
  readonly isLive: (instanceId: string) => boolean;
  /** Whether the functions of a shard are served here now. */
  readonly isServed: (shard: string) => boolean;
  /** The node in the database; null: there is no such thing. */
  readonly nodeOfInstance: (id: string) => Promise<string | null>;
  /** The node that has what is asked for; null: any can answer. It changes in the life of a job. */
  readonly nodeOfJob: (tenant: string, id: string, what: 'log' | 'stop') => Promise<string | null>;
  /** Nobody waits for this node any more: only the database still knows its things. */
  readonly isLost: (nodeId: string) => boolean;
  /** How long a request waits for an owner that is on its way: a replica that starts again, a shard that changes hands. */
  readonly waitMs: number;
}

const MAX_REMEMBERED = 100_000;
/** How often a thing without an owner is looked for. */
const LOOK_MS = 50;
/** How often its row is asked whose an instance is, while its replica does not live. */
const ROW_LOOK_MS = 1000;
/** How long a replica that cannot be reached is given to be seen as gone. */
const SETTLE_MS = 200;

/**
 * Where things live: instances with the node of their row, for as long as they live; jobs with the node that runs them; functions with the
 * owner of their shard. A thing of this node costs one look into a map. Requests wait while a thing has no owner: in a rolling restart no
 * call fails.
 */
export class NodeLocator implements Locator {
  readonly #options: LocatorOptions;
  /** The nodes of instances. An instance gets another node only when its own is lost: it is right while that lives, in the same life. */
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

  async refresh(thing: Thing, key: string, tenant: string): Promise<Replica> {
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
      const node = await lookUntil(look, Math.min(untilMs, performance.now() + ROW_LOOK_MS));
      if (node !== undefined) {
        this.#nodes.set(id, { id: nodeId, epoch: node.epoch });
        return this.#targetOf(node);
      }
      if (performance.now() >= untilMs) throw noAnswerOf(nodeId);
      // Meanwhile another replica may have taken over what it had.
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
    // One without roles is about to end: it takes nothing new, and what it has is asked for when it is back.
    return this.#options.membership.living().find(({ id, roles }) => id === nodeId && roles.length > 0);
  }

  #targetOf({ id, advertise }: LivingNode): Target {
    return id === this.#options.self.nodeId ? null : { nodeId: id, address: advertise };
  }

  /** The result of `look`; undefined while there is none. */
  async #waitFor(look: () => Target | undefined, failure: () => Error): Promise<Target> {
    const found = await lookUntil(look, performance.now() + this.#options.waitMs);
    if (found === undefined) throw failure();
    return found;
  }
}

function noAnswerOf(nodeId: string): Error {
  return unavailable(`the replica that has it (${nodeId}) does not answer`, { retryAfterSeconds: 1 });
}

/** The first result of `look` that is not undefined; undefined when there was none by then. Looks once at least. */
async function lookUntil<T>(look: () => T | undefined, untilMs: number): Promise<T | undefined> {
  for (;;) {
    const found = look();
    if (found !== undefined || performance.now() >= untilMs) return found;
    await pause(LOOK_MS);
  }
}

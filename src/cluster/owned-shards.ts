import type { Lease } from '../core/lease.ts';
import { SHARD_NAMES } from '../core/shard.ts';
import type { LeaseName, LeaseOwner, Shards } from './contract.ts';

/** Who serves the functions of the shards that this node holds. */
export interface ShardListener {
  /** Never rejects. */
  acquired(shards: readonly string[]): Promise<void>;
  /** No new work comes for them already. They go to another node once this resolves. Never rejects. */
  release(shards: readonly string[], graceMs: number): Promise<void>;
  lost(shards: readonly string[]): void;
}

const SHARDS: ReadonlySet<string> = new Set(SHARD_NAMES);

/** Tells those who serve functions which shards are theirs: many that come at one moment at once, since each costs them a look at all. */
export class OwnedShards implements LeaseOwner {
  readonly #shards: Shards;
  readonly #releaseMs: number;
  readonly #held = new Map<string, Lease>();
  #listeners: readonly ShardListener[] = [];
  #onOther: () => void = () => undefined;
  #acquired: string[] = [];

  /** `releaseMs`: how long calls of a shard may go on when it is handed over. */
  constructor(shards: Shards, releaseMs: number) {
    this.#shards = shards;
    this.#releaseMs = releaseMs;
  }

  /**
   * To be called before the first lease is taken. In this order they hear of shards that come, and in the opposite one of those that go;
   * `onOther` is called when another lease comes or goes.
   */
  tell(listeners: readonly ShardListener[], onOther: () => void): void {
    this.#listeners = listeners;
    this.#onOther = onOther;
  }

  /** The lease of a shard that is held and not being handed over. */
  held(shard: string): Lease | null {
    return this.#held.get(shard) ?? null;
  }

  onAcquired(name: LeaseName): void {
    if (!SHARDS.has(name)) {
      this.#onOther();
      return;
    }
    const lease: Lease = {
      fence: this.#shards.fence(name),
      isHeld: () => this.#held.get(name) === lease && this.#shards.holds(name),
    };
    this.#held.set(name, lease);
    this.#acquired.push(name);
    if (this.#acquired.length === 1) setImmediate(() => void this.#tellAcquired());
  }

  async onReleasing(name: LeaseName): Promise<void> {
    if (!this.#held.delete(name)) return;
    for (const listener of this.#listeners.toReversed()) await listener.release([name], this.#releaseMs);
  }

  onLost(name: LeaseName): void {
    if (!SHARDS.has(name)) {
      this.#onOther();
      return;
    }
    this.#held.delete(name);
    for (const listener of this.#listeners.toReversed()) listener.lost([name]);
  }

  async #tellAcquired(): Promise<void> {
    const shards = this.#acquired.filter(name => this.#held.has(name));
    this.#acquired = [];
    for (const listener of this.#listeners) await listener.acquired(shards);
  }
}

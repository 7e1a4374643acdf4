import type { Lease } from '../core/lease.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import type { LeaseName, LeaseOwner, Shards } from './contract.ts';

/** Part that serves the functions of the shards that this node holds. */
export interface ShardListener {
  /** Begins to serve the shards. Never rejects. */
  acquired(shards: readonly string[]): Promise<void>;
  /**
   * Ends the work of shards for which no new work arrives any more. Resolves when another node may take them.
   * Never rejects.
   */
  release(shards: readonly string[], graceMs: number): Promise<void>;
  lost(shards: readonly string[]): void;
}

const SHARDS: ReadonlySet<string> = new Set(SHARD_NAMES);

/**
 * Notifies the listeners of the shards of this node. Shards that arrive together are reported together, since
 * each report costs a listener a pass over all functions.
 */
export class OwnedShards implements LeaseOwner {
  readonly #shards: Shards;
  readonly #releaseMs: number;
  readonly #held = new Map<string, Lease>();
  #listeners: readonly ShardListener[] = [];
  #onOther: () => void = () => undefined;
  #acquired: string[] = [];

  /** `releaseMs` is how long calls of a shard may continue while it is transferred. */
  constructor(shards: Shards, releaseMs: number) {
    this.#shards = shards;
    this.#releaseMs = releaseMs;
  }

  /**
   * Sets the listeners; must be called before the first lease is taken. Listeners get new shards in this
   * order and lost ones in the opposite order. `onOther` is called when another lease is acquired or lost.
   */
  setListeners(listeners: readonly ShardListener[], onOther: () => void): void {
    this.#listeners = listeners;
    this.#onOther = onOther;
  }

  /** Returns the lease of a shard that is held and not being transferred, or null. */
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

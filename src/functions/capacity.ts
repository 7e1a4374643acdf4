import { Counter } from '../lib/counter.ts';
import type { GroupKey } from './policy.ts';

export interface CapacityOptions {
  /** Instances of functions on this machine, over all tenants. */
  readonly maxInstances: number;
  readonly maxInstancesPerTenant: number;
  readonly machine: Machine;
}

/** Resources of the machine, and how much of them is reserved for instances of all kinds (`Ledger`). */
export interface Machine {
  /** Returns true if an instance of that size could ever run here. */
  isLargeEnough(key: GroupKey): boolean;
  /** Returns true if too much is reserved to start an instance of that size now. */
  isFull(key: GroupKey): boolean;
  reserve(key: GroupKey): void;
  release(key: GroupKey): void;
  /** Registers a listener that is called when resources are released after a refusal. */
  onReleased(listener: () => void): void;
}

/** Holder of instances that may want more. */
export interface CapacityUser {
  readonly tenant: string;
  /** Notifies the user that capacity may be available again. */
  onCapacity(): void;
  /** Ends one idle instance above its group's minimum. Returns false when there is none. */
  evictIdle(): boolean;
  /** True if the user still wants the capacity that it was refused. */
  readonly hasDemand: boolean;
  /** Arrival time of its oldest waiting call; undefined when no call waits. */
  readonly waitingSinceMs: number | undefined;
}

/**
 * Capacity of this machine, shared by all versions. Refused users retry in the order of their refusals, so
 * that a busy function does not starve others.
 */
export class Capacity {
  readonly #options: CapacityOptions;
  readonly #users = new Set<CapacityUser>();
  /** Refused users, with the number of instances that each wanted and their size. */
  readonly #refused = new Map<CapacityUser, { readonly wanted: number; readonly key: GroupKey }>();
  /** Number of idle instances that are ending to release capacity. */
  #yielding = 0;
  readonly #perTenant = new Counter();
  #taken = 0;

  constructor(options: CapacityOptions) {
    this.#options = options;
    options.machine.onReleased(() => this.#retryRefused());
  }

  get taken(): number {
    return this.#taken;
  }

  register(user: CapacityUser): void {
    this.#users.add(user);
  }

  unregister(user: CapacityUser): void {
    this.#users.delete(user);
    this.#refused.delete(user);
  }

  /** Returns true if an instance of that size could ever run here. */
  fits(key: GroupKey): boolean {
    return this.#options.machine.isLargeEnough(key);
  }

  /** Returns true if `user` cannot get another instance of that size now. */
  isFull(user: CapacityUser, key: GroupKey): boolean {
    return this.#isTenantFull(user) || this.#isMachineFull(key);
  }

  /**
   * Reserves capacity for one of the `wanted` instances, or returns false. On refusal, idle instances that
   * occupy the capacity end now, or later when they become idle (`isWanted`). `user.onCapacity` is called
   * when capacity was released.
   */
  tryReserve(user: CapacityUser, wanted: number, key: GroupKey): boolean {
    if (this.isFull(user, key)) {
      const tenantFull = this.#isTenantFull(user);
      this.#refused.set(user, { wanted, key });
      for (const holder of this.#users) {
        if (tenantFull && holder.tenant !== user.tenant) continue;
        while (this.#shortage() > 0 && holder.evictIdle()) this.#yielding += 1;
      }
      return false;
    }
    this.reserve(user, key);
    return true;
  }

  /** Returns true if an idle instance of `holder` should end because another user waits for its capacity. */
  isWanted(holder: CapacityUser): boolean {
    if (this.#refused.size === 0 || this.#shortage() <= 0) return false;
    for (const [user, { key }] of this.#refused) {
      if (this.#isTenantFull(user) ? holder.tenant === user.tenant : this.#isMachineFull(key)) return true;
    }
    return false;
  }

  /**
   * Returns how many instances other users lack whose oldest call has waited since `sinceMs` or longer. Only
   * users count whom `holder` can help. Capacity that is already being released is subtracted.
   */
  shortageSince(sinceMs: number, holder: CapacityUser): number {
    if (this.#refused.size === 0 || this.#shortage() <= 0) return 0;
    let shortage = -this.#yielding;
    for (const [user, { wanted, key }] of this.#refused) {
      if (user === holder || (user.waitingSinceMs ?? Number.POSITIVE_INFINITY) > sinceMs) continue;
      if (this.#isTenantFull(user) ? holder.tenant === user.tenant : this.#isMachineFull(key)) shortage += wanted;
    }
    return shortage;
  }

  /** Counts an instance that ends to release capacity. */
  countYield(): void {
    this.#yielding += 1;
  }

  /** Counts an instance, whatever the bounds say; also for instances that were adopted after a restart. */
  reserve(user: CapacityUser, key: GroupKey): void {
    this.#options.machine.reserve(key);
    this.#taken += 1;
    this.#perTenant.add(user.tenant);
  }

  release(user: CapacityUser, key: GroupKey): void {
    this.#taken -= 1;
    if (this.#yielding > 0) this.#yielding -= 1;
    this.#perTenant.add(user.tenant, -1);
    this.#options.machine.release(key);
    this.#retryRefused();
  }

  /** Lets every refused user retry. */
  #retryRefused(): void {
    const waiting = [...this.#refused.keys()];
    this.#refused.clear();
    const served: CapacityUser[] = [];
    for (const refused of waiting) {
      const before = this.#taken;
      refused.onCapacity();
      if (this.#taken > before) served.push(refused);
    }
    // Users that got capacity and want more queue behind those that got none.
    for (const user of served) {
      const again = this.#refused.get(user);
      if (again === undefined) continue;
      this.#refused.delete(user);
      this.#refused.set(user, again);
    }
  }

  #isTenantFull({ tenant }: CapacityUser): boolean {
    return this.#perTenant.get(tenant) >= this.#options.maxInstancesPerTenant;
  }

  #isMachineFull(key: GroupKey): boolean {
    return this.#taken >= this.#options.maxInstances || this.#options.machine.isFull(key);
  }

  /** Returns how many instances are still wanted, beyond the capacity that is being released. */
  #shortage(): number {
    let wanted = -this.#yielding;
    for (const [user, refused] of this.#refused) {
      if (user.hasDemand) wanted += refused.wanted;
      else this.#refused.delete(user);
    }
    return wanted;
  }
}

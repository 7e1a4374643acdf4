import type { GroupKey } from './policy.ts';

export interface CapacityOptions {
  /** Instances of function services on this machine, over all tenants. */
  readonly maxInstances: number;
  readonly maxInstancesPerTenant: number;
  readonly machine: Machine;
}

/** The machine's resources, and those that it has promised to everybody (`Ledger`). */
export interface Machine {
  /** True when an instance of that size could ever run here. */
  isLargeEnough(key: GroupKey): boolean;
  /** True when it has promised so much that no instance of that size may start now. */
  isFull(key: GroupKey): boolean;
  take(key: GroupKey): void;
  give(key: GroupKey): void;
  /** Told when something was given back after somebody had been refused. */
  onGiven(listener: () => void): void;
}

/** Someone who holds instances and may want more. */
export interface CapacityUser {
  readonly tenant: string;
  /** There is capacity again. */
  onCapacity(): void;
  /** Ends one idle instance that nobody is entitled to; false when it has none. */
  evictIdle(): boolean;
  /** It still wants what it was refused. */
  readonly wantsMore: boolean;
  /** Since when its oldest waiting call has waited; undefined when none waits. */
  readonly waitingSinceMs: number | undefined;
}

/**
 * The capacity of this machine, shared by all services. Those that were refused are asked again in the order of their refusal,
 * so that one busy function never starves another.
 */
export class Capacity {
  readonly #options: CapacityOptions;
  readonly #users = new Set<CapacityUser>();
  /** Who was refused, how many instances it wanted, and of which size. */
  readonly #refused = new Map<CapacityUser, { readonly wanted: number; readonly key: GroupKey }>();
  /** Idle instances that are ending to give capacity back. */
  #leaving = 0;
  readonly #perTenant = new Map<string, number>();
  #taken = 0;

  constructor(options: CapacityOptions) {
    this.#options = options;
    options.machine.onGiven(() => this.#askAgain());
  }

  get taken(): number {
    return this.#taken;
  }

  join(user: CapacityUser): void {
    this.#users.add(user);
  }

  leave(user: CapacityUser): void {
    this.#users.delete(user);
    this.#refused.delete(user);
  }

  /** True when an instance of that size could ever run here. */
  fits(key: GroupKey): boolean {
    return this.#options.machine.isLargeEnough(key);
  }

  /** True when `user` gets no further instance of that size now. */
  isFull(user: CapacityUser, key: GroupKey): boolean {
    return this.#isTenantFull(user) || this.#isMachineFull(key);
  }

  /**
   * Takes capacity for one of the `wanted` instances. When there is none, idle instances of others are ended, now or as soon as there are any
   * (`isWanted`), and `user` hears of it when that is done.
   */
  tryTake(user: CapacityUser, wanted: number, key: GroupKey): boolean {
    if (this.isFull(user, key)) {
      const tenantFull = this.#isTenantFull(user);
      this.#refused.set(user, { wanted, key });
      for (const holder of this.#users) {
        if (tenantFull && holder.tenant !== user.tenant) continue;
        while (this.#lacks() > 0 && holder.evictIdle()) this.#leaving += 1;
      }
      return false;
    }
    this.take(user, key);
    return true;
  }

  /** Whether an instance of `holder` that is idle should end, because somebody waits for its capacity. */
  isWanted(holder: CapacityUser): boolean {
    if (this.#refused.size === 0 || this.#lacks() <= 0) return false;
    for (const [user, { key }] of this.#refused) {
      if (this.#isTenantFull(user) ? holder.tenant === user.tenant : this.#isMachineFull(key)) return true;
    }
    return false;
  }

  /**
   * Instances that others want whose calls have waited since `sinceMs` at least, and for whom `holder` can give capacity back, beyond the capacity
   * that is being made.
   */
  lackedSince(sinceMs: number, holder: CapacityUser): number {
    if (this.#refused.size === 0 || this.#lacks() <= 0) return 0;
    let lacked = -this.#leaving;
    for (const [user, { wanted, key }] of this.#refused) {
      if (user === holder || (user.waitingSinceMs ?? Number.POSITIVE_INFINITY) > sinceMs) continue;
      if (this.#isTenantFull(user) ? holder.tenant === user.tenant : this.#isMachineFull(key)) lacked += wanted;
    }
    return lacked;
  }

  /** An instance of somebody ends to give capacity back. */
  yielded(): void {
    this.#leaving += 1;
  }

  /** Counts an instance that runs already (adopted after a restart), whatever the bounds say. */
  take(user: CapacityUser, key: GroupKey): void {
    this.#options.machine.take(key);
    this.#taken += 1;
    this.#perTenant.set(user.tenant, (this.#perTenant.get(user.tenant) ?? 0) + 1);
  }

  give(user: CapacityUser, key: GroupKey): void {
    this.#taken -= 1;
    if (this.#leaving > 0) this.#leaving -= 1;
    const left = (this.#perTenant.get(user.tenant) ?? 1) - 1;
    if (left > 0) this.#perTenant.set(user.tenant, left);
    else this.#perTenant.delete(user.tenant);
    this.#options.machine.give(key);
    this.#askAgain();
  }

  /** Whoever was refused may have more luck now. */
  #askAgain(): void {
    const waiting = [...this.#refused.keys()];
    this.#refused.clear();
    const served: CapacityUser[] = [];
    for (const refused of waiting) {
      const before = this.#taken;
      refused.onCapacity();
      if (this.#taken > before) served.push(refused);
    }
    // Whoever got something and wants more goes behind those who got nothing.
    for (const user of served) {
      const again = this.#refused.get(user);
      if (again === undefined) continue;
      this.#refused.delete(user);
      this.#refused.set(user, again);
    }
  }

  #isTenantFull({ tenant }: CapacityUser): boolean {
    return (this.#perTenant.get(tenant) ?? 0) >= this.#options.maxInstancesPerTenant;
  }

  #isMachineFull(key: GroupKey): boolean {
    return this.#taken >= this.#options.maxInstances || this.#options.machine.isFull(key);
  }

  /** Instances that somebody still waits for, beyond the capacity that is being given back. */
  #lacks(): number {
    let wanted = -this.#leaving;
    for (const [user, refused] of this.#refused) {
      if (user.wantsMore) wanted += refused.wanted;
      else this.#refused.delete(user);
    }
    return wanted;
  }
}

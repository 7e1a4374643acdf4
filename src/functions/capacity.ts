import type { GroupKey } from './policy.ts';

export interface CapacityOptions {
  /** Instances of function services on this machine, over all tenants. */
  readonly maxInstances: number;
  readonly maxInstancesPerTenant: number;
  /** An instance that asks for more than the machine has is no capacity at all. */
  readonly machineCpuMillis: number;
  readonly machineMemoryMb: number;
}

/** Someone who holds instances and may want more. */
export interface CapacityUser {
  readonly tenant: string;
  /** There is room again. */
  onCapacity(): void;
  /** Ends one idle instance that nobody is entitled to; false when it has none. */
  evictIdle(): boolean;
  /** It still wants what it was refused. */
  readonly wantsMore: boolean;
  /** Since when its oldest waiting call has waited; undefined when none waits. */
  readonly waitingSinceMs: number | undefined;
}

/**
 * What this machine can carry, shared by all services. Those that were refused are asked again in the order of their refusal,
 * so that one busy function never starves another.
 */
export class Capacity {
  readonly #options: CapacityOptions;
  readonly #users = new Set<CapacityUser>();
  /** Who was refused, and how many instances it wanted. */
  readonly #refused = new Map<CapacityUser, number>();
  /** Idle instances that are ending to make room. */
  #leaving = 0;
  readonly #perTenant = new Map<string, number>();
  #taken = 0;

  constructor(options: CapacityOptions) {
    this.#options = options;
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
    return key.cpuMillis <= this.#options.machineCpuMillis && key.memoryMb <= this.#options.machineMemoryMb;
  }

  /** True when `user` gets no further instance now. */
  isFull(user: CapacityUser): boolean {
    return this.#isTenantFull(user) || this.#taken >= this.#options.maxInstances;
  }

  /**
   * Takes room for one of the `wanted` instances. When there is none, idle instances of others are ended, now or as soon as there are any
   * (`isWanted`), and `user` is told when that is done.
   */
  tryTake(user: CapacityUser, wanted: number): boolean {
    if (this.isFull(user)) {
      const tenantFull = this.#isTenantFull(user);
      this.#refused.set(user, wanted);
      for (const holder of this.#users) {
        if (tenantFull && holder.tenant !== user.tenant) continue;
        while (this.#lacks() > 0 && holder.evictIdle()) this.#leaving += 1;
      }
      return false;
    }
    this.take(user);
    return true;
  }

  /** Whether an instance of `holder` that is idle should end, because somebody waits for its room. */
  isWanted(holder: CapacityUser): boolean {
    if (this.#refused.size === 0 || this.#lacks() <= 0) return false;
    for (const user of this.#refused.keys()) {
      if (this.#isTenantFull(user) ? holder.tenant === user.tenant : this.#taken >= this.#options.maxInstances)
        return true;
    }
    return false;
  }

  /**
   * Instances that others want whose calls have waited since `sinceMs` at least, and for whom `holder` can make room, beyond the room
   * that is being made.
   */
  lackedSince(sinceMs: number, holder: CapacityUser): number {
    if (this.#refused.size === 0 || this.#lacks() <= 0) return 0;
    let lacked = -this.#leaving;
    for (const [user, wanted] of this.#refused) {
      if (user === holder || (user.waitingSinceMs ?? Number.POSITIVE_INFINITY) > sinceMs) continue;
      if (this.#isTenantFull(user) ? holder.tenant === user.tenant : this.isFull(user)) lacked += wanted;
    }
    return lacked;
  }

  /** An instance of somebody ends to make room. */
  yielded(): void {
    this.#leaving += 1;
  }

  /** Counts an instance that runs already (adopted after a restart), whatever the bounds say. */
  take(user: CapacityUser): void {
    this.#taken += 1;
    this.#perTenant.set(user.tenant, (this.#perTenant.get(user.tenant) ?? 0) + 1);
  }

  give(user: CapacityUser): void {
    this.#taken -= 1;
    if (this.#leaving > 0) this.#leaving -= 1;
    const left = (this.#perTenant.get(user.tenant) ?? 1) - 1;
    if (left > 0) this.#perTenant.set(user.tenant, left);
    else this.#perTenant.delete(user.tenant);
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
      const wanted = this.#refused.get(user);
      if (wanted === undefined) continue;
      this.#refused.delete(user);
      this.#refused.set(user, wanted);
    }
  }

  #isTenantFull({ tenant }: CapacityUser): boolean {
    return (this.#perTenant.get(tenant) ?? 0) >= this.#options.maxInstancesPerTenant;
  }

  /** Instances that somebody still waits for, beyond the room that is being made. */
  #lacks(): number {
    let wanted = -this.#leaving;
    for (const [user, count] of this.#refused) {
      if (user.wantsMore) wanted += count;
      else this.#refused.delete(user);
    }
    return wanted;
  }
}

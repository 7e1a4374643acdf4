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
}

/**
 * What this machine can carry, shared by all services. Those that were refused are asked again in the order of their refusal,
 * so that one busy function never starves another.
 */
export class Capacity {
  readonly #options: CapacityOptions;
  readonly #users = new Set<CapacityUser>();
  readonly #refused = new Set<CapacityUser>();
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

  /** Takes room for one instance. When there is none, an idle instance of somebody is ended, and `user` is told when that is done. */
  tryTake(user: CapacityUser): boolean {
    const ofTenant = this.#perTenant.get(user.tenant) ?? 0;
    const tenantFull = ofTenant >= this.#options.maxInstancesPerTenant;
    if (tenantFull || this.#taken >= this.#options.maxInstances) {
      this.#refused.add(user);
      for (const holder of this.#users) {
        if ((!tenantFull || holder.tenant === user.tenant) && holder.evictIdle()) break;
      }
      return false;
    }
    this.take(user);
    return true;
  }

  /** Counts an instance that runs already (adopted after a restart), whatever the bounds say. */
  take(user: CapacityUser): void {
    this.#taken += 1;
    this.#perTenant.set(user.tenant, (this.#perTenant.get(user.tenant) ?? 0) + 1);
  }

  give(user: CapacityUser): void {
    this.#taken -= 1;
    const left = (this.#perTenant.get(user.tenant) ?? 1) - 1;
    if (left > 0) this.#perTenant.set(user.tenant, left);
    else this.#perTenant.delete(user.tenant);
    const waiting = [...this.#refused];
    this.#refused.clear();
    const served: CapacityUser[] = [];
    for (const refused of waiting) {
      const before = this.#taken;
      refused.onCapacity();
      if (this.#taken > before) served.push(refused);
    }
    // Whoever got something and wants more goes behind those who got nothing.
    for (const user of served) {
      if (this.#refused.delete(user)) this.#refused.add(user);
    }
  }
}

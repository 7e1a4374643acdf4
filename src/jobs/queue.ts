import type { JobResources } from '../core/job.ts';

/** A job that waits or runs, as the queue sees it. */
export interface QueueItem {
  readonly sequence: number;
  readonly tenant: string;
  readonly priority: number;
  readonly resources: JobResources;
}

export interface QueueLimits {
  readonly maxRunning: number;
  readonly maxRunningPerTenant: number;
  /** The most that all running jobs may have asked for together. */
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly custom: Readonly<Record<string, number>>;
}

/** The machine's promises to everybody (`Ledger`), as the queue asks for them. */
export interface QueueMachine {
  /** True when nothing of that size may start now. */
  isFull(resources: JobResources): boolean;
  take(resources: JobResources): void;
  give(resources: JobResources): void;
}

interface Used {
  running: number;
  cpuMillis: number;
  memoryMb: number;
}

interface Tenant {
  readonly name: string;
  /** By priority, then by submission. */
  readonly waiting: QueueItem[];
  readonly used: Used;
  /** When it was last given a slot; counts up. */
  servedAt: number;
}

/**
 * Which job starts next; no I/O, no time.
 *
 * Within a tenant the highest priority first, then in the order of submission. Between tenants: the one that uses the least of its scarcest
 * resource, then the one that has waited the longest for its turn. When the job whose turn it is does not fit, nothing passes it, so
 * that large ones are not starved by small ones; a tenant at its own limit, and jobs that this machine can never run, hold up nobody.
 */
export class JobQueue {
  readonly #limits: QueueLimits;
  readonly #machine: QueueMachine;
  readonly #tenants = new Map<string, Tenant>();
  readonly #used: Used = { running: 0, cpuMillis: 0, memoryMb: 0 };
  /** By name, which is a caller's own: it may be one that every object has. */
  readonly #custom: ReadonlyMap<string, number>;
  /** In whole shares, as all that is added up. */
  readonly #usedCustom = new Map<string, number>();
  readonly #impossible = new Map<number, QueueItem>();
  #turn = 0;
  #waiting = 0;

  constructor(limits: QueueLimits, machine: QueueMachine) {
    this.#limits = limits;
    this.#machine = machine;
    this.#custom = new Map(Object.entries(limits.custom));
  }

  get waiting(): number {
    return this.#waiting + this.#impossible.size;
  }

  get running(): number {
    return this.#used.running;
  }

  add(item: QueueItem): void {
    if (this.shortage(item.resources) !== null) {
      this.#impossible.set(item.sequence, item);
      return;
    }
    const { waiting } = this.#tenant(item.tenant);
    let low = 0;
    let high = waiting.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (isBefore(waiting[middle] as QueueItem, item)) low = middle + 1;
      else high = middle;
    }
    waiting.splice(low, 0, item);
    this.#waiting += 1;
  }

  /** False when it does not wait. */
  remove(item: QueueItem): boolean {
    if (this.#impossible.delete(item.sequence)) return true;
    const tenant = this.#tenants.get(item.tenant);
    const at = tenant?.waiting.findIndex(each => each.sequence === item.sequence) ?? -1;
    if (tenant === undefined || at === -1) return false;
    tenant.waiting.splice(at, 1);
    this.#waiting -= 1;
    this.#forgetIdle(tenant);
    return true;
  }

  /** The job that may start now, which then counts as running; undefined when there is none. */
  take(): QueueItem | undefined {
    if (this.#waiting === 0 || this.#used.running >= this.#limits.maxRunning) return undefined;
    const tenant = this.#neediest();
    const item = tenant?.waiting[0];
    if (tenant === undefined || item === undefined || !this.#fits(item.resources)) return undefined;
    tenant.waiting.shift();
    this.#waiting -= 1;
    this.#turn += 1;
    tenant.servedAt = this.#turn;
    this.occupy(item);
    return item;
  }

  /** It runs already: it was found running, or was taken. */
  occupy(item: QueueItem): void {
    this.#machine.take(item.resources);
    this.#count(item, 1);
  }

  /** It does not run any more. */
  release(item: QueueItem): void {
    this.#machine.give(item.resources);
    this.#count(item, -1);
    const tenant = this.#tenants.get(item.tenant);
    if (tenant) this.#forgetIdle(tenant);
  }

  /** Why a job of this size can never run here, as a sentence's end; null when it can. */
  shortage({ cpuMillis, memoryMb, gpus, custom }: JobResources): string | null {
    const limits = this.#limits;
    if (gpus > 0) return `it asks for ${gpus} GPUs, and there are none`;
    if (cpuMillis > limits.cpuMillis) {
      return `it asks for ${cpuMillis / 1000} CPUs, and there are ${limits.cpuMillis / 1000}`;
    }
    if (memoryMb > limits.memoryMb)
      return `it asks for ${memoryMb} MiB of memory, and there are ${limits.memoryMb} MiB`;
    for (const [name, amount] of Object.entries(custom)) {
      const there = this.#custom.get(name) ?? 0;
      if (sharesOf(amount) > sharesOf(there)) return `it asks for ${amount} of ${name}, and there are ${there}`;
    }
    return null;
  }

  #tenant(name: string): Tenant {
    let tenant = this.#tenants.get(name);
    if (!tenant) {
      tenant = { name, waiting: [], used: { running: 0, cpuMillis: 0, memoryMb: 0 }, servedAt: 0 };
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }

  #forgetIdle(tenant: Tenant): void {
    if (tenant.waiting.length === 0 && tenant.used.running === 0) this.#tenants.delete(tenant.name);
  }

  #neediest(): Tenant | undefined {
    let found: Tenant | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const tenant of this.#tenants.values()) {
      if (tenant.waiting.length === 0 || tenant.used.running >= this.#limits.maxRunningPerTenant) continue;
      const share = this.#share(tenant.used);
      if (share < least || (share === least && tenant.servedAt < (found?.servedAt ?? 0))) {
        least = share;
        found = tenant;
      }
    }
    return found;
  }

  /** The largest part that it has of anything. */
  #share({ running, cpuMillis, memoryMb }: Used): number {
    const { maxRunning, cpuMillis: allCpu, memoryMb: allMemory } = this.#limits;
    return Math.max(running / maxRunning, cpuMillis / allCpu, memoryMb / allMemory);
  }

  #fits(resources: JobResources): boolean {
    const { cpuMillis, memoryMb, custom } = resources;
    const limits = this.#limits;
    if (this.#used.cpuMillis + cpuMillis > limits.cpuMillis) return false;
    if (this.#used.memoryMb + memoryMb > limits.memoryMb) return false;
    if (this.#machine.isFull(resources)) return false;
    return Object.entries(custom).every(
      ([name, amount]) => (this.#usedCustom.get(name) ?? 0) + sharesOf(amount) <= sharesOf(this.#custom.get(name) ?? 0),
    );
  }

  #count({ tenant, resources }: QueueItem, change: 1 | -1): void {
    for (const used of [this.#used, this.#tenant(tenant).used]) {
      used.running += change;
      used.cpuMillis += change * resources.cpuMillis;
      used.memoryMb += change * resources.memoryMb;
    }
    for (const [name, amount] of Object.entries(resources.custom)) {
      this.#usedCustom.set(name, (this.#usedCustom.get(name) ?? 0) + change * sharesOf(amount));
    }
  }
}

/** Ten-thousandths, as Ray counts: sums of fractions drift, and what is free again would not be. Any amount is one at least. */
function sharesOf(amount: number): number {
  return amount > 0 ? Math.max(1, Math.round(amount * 10_000)) : 0;
}

function isBefore(a: QueueItem, b: QueueItem): boolean {
  return a.priority === b.priority ? a.sequence < b.sequence : a.priority > b.priority;
}

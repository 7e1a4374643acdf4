import type { JobResources } from '../core/job.ts';

/** Job that waits or runs, as the queue sees it. */
export interface QueueItem {
  readonly sequence: number;
  readonly tenant: string;
  readonly priority: number;
  readonly resources: JobResources;
}

export interface QueueLimits {
  readonly maxRunning: number;
  readonly maxRunningPerTenant: number;
  /** Maximum that all running jobs may have requested together. */
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly custom: Readonly<Record<string, number>>;
}

/** Resources that the machine has reserved for all kinds of instances (`Ledger`). */
export interface QueueMachine {
  /** Returns true if nothing of that size may start now. */
  isFull(resources: JobResources): boolean;
  reserve(resources: JobResources): void;
  release(resources: JobResources): void;
}

interface JobUsage {
  running: number;
  cpuMillis: number;
  memoryMb: number;
}

interface Tenant {
  readonly name: string;
  /** Waiting jobs by priority, then by submission. */
  readonly waiting: QueueItem[];
  readonly used: JobUsage;
  /** Turn of its last start; larger is later. */
  servedAt: number;
}

/**
 * Decides which job starts next. Has no I/O and no clock.
 * Within a tenant, jobs start by priority and then by submission. Between tenants, the smallest share of the
 * scarcest resource comes first. With equal shares, the tenant whose last start is longest ago comes first.
 * If the next job does not fit, no other job passes it. Otherwise small jobs could starve large ones. Tenants
 * at their own limit, and jobs that can never run here, block no other job.
 */
export class JobQueue {
  readonly #limits: QueueLimits;
  readonly #machine: QueueMachine;
  readonly #tenants = new Map<string, Tenant>();
  readonly #used: JobUsage = { running: 0, cpuMillis: 0, memoryMb: 0 };
  /** A `Map`, because callers choose the names: one may equal a property that every object has. */
  readonly #custom: ReadonlyMap<string, number>;
  /** Used amounts in whole shares; see `sharesOf`. */
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

  /** Removes a waiting job. Returns false when it does not wait. */
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

  /** Takes the job that may start now, and counts it as running; undefined when none may. */
  startNext(): QueueItem | undefined {
    if (this.#waiting === 0 || this.#used.running >= this.#limits.maxRunning) return undefined;
    const tenant = this.#neediest();
    const item = tenant?.waiting[0];
    if (tenant === undefined || item === undefined || this.#lackFor(item.resources) !== null) return undefined;
    tenant.waiting.shift();
    this.#waiting -= 1;
    this.#turn += 1;
    tenant.servedAt = this.#turn;
    this.occupy(item);
    return item;
  }

  /** Counts a job as running. */
  occupy(item: QueueItem): void {
    this.#machine.reserve(item.resources);
    this.#count(item, 1);
  }

  /** Ends the count of a job as running. */
  release(item: QueueItem): void {
    this.#machine.release(item.resources);
    this.#count(item, -1);
    const tenant = this.#tenants.get(item.tenant);
    if (tenant) this.#forgetIdle(tenant);
  }

  /** Returns why a job of this size can never run here, as the end of a sentence; null when it can. */
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

  /**
   * Returns what a job of the queue waits for, as the end of a sentence. Null when it does not wait here, or
   * can never start (`shortage`). Amounts that other tenants use do not appear.
   */
  waitReason({ tenant: name, sequence }: Pick<QueueItem, 'tenant' | 'sequence'>): string | null {
    const tenant = this.#tenants.get(name);
    const before = tenant?.waiting.findIndex(each => each.sequence === sequence) ?? -1;
    const next = tenant?.waiting[0];
    if (tenant === undefined || next === undefined || before === -1) return null;
    const { maxRunning, maxRunningPerTenant } = this.#limits;
    if (this.#used.running >= maxRunning) return `one of the ${maxRunning} places for running jobs (jobs.maxRunning)`;
    if (tenant.used.running >= maxRunningPerTenant) {
      return `one of the ${maxRunningPerTenant} places that a tenant has for running jobs (jobs.maxRunningPerTenant)`;
    }
    const reason = this.#lackFor(next.resources) ?? 'its turn among the jobs of other tenants';
    if (before === 0) return reason;
    const jobs = before === 1 ? 'a job of this tenant that starts' : `${before} jobs of this tenant that start`;
    return `${jobs} before it; the next one waits for ${reason}`;
  }

  /** Returns which resource is not free for a job that could run here; null when it fits now. */
  #lackFor(resources: JobResources): string | null {
    const { cpuMillis, memoryMb, custom } = resources;
    const limits = this.#limits;
    if (this.#used.cpuMillis + cpuMillis > limits.cpuMillis) {
      return `${cpuMillis / 1000} free CPUs of the ${limits.cpuMillis / 1000} for jobs`;
    }
    if (this.#used.memoryMb + memoryMb > limits.memoryMb) {
      return `${memoryMb} MiB of free memory of the ${limits.memoryMb} MiB for jobs`;
    }
    for (const [name, amount] of Object.entries(custom)) {
      const there = this.#custom.get(name) ?? 0;
      const used = this.#usedCustom.get(name) ?? 0;
      if (used + sharesOf(amount) > sharesOf(there)) return `${amount} free of the ${there} of ${name}`;
    }
    return this.#machine.isFull(resources)
      ? 'room on the machine, which agents, functions and jobs have reserved'
      : null;
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

  /** Returns the largest share that a tenant has of any resource. */
  #share({ running, cpuMillis, memoryMb }: JobUsage): number {
    const { maxRunning, cpuMillis: allCpu, memoryMb: allMemory } = this.#limits;
    return Math.max(running / maxRunning, cpuMillis / allCpu, memoryMb / allMemory);
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

/**
 * Returns an amount in ten-thousandths, the unit of Ray. Sums of fractions would drift and keep released
 * amounts in use. Any amount above 0 counts as at least one.
 */
function sharesOf(amount: number): number {
  return amount > 0 ? Math.max(1, Math.round(amount * 10_000)) : 0;
}

function isBefore(a: QueueItem, b: QueueItem): boolean {
  return a.priority === b.priority ? a.sequence < b.sequence : a.priority > b.priority;
}

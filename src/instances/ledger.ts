import { SERVICE_CODES } from '../core/codes.ts';
import { resourceExhausted, type ServiceError } from '../core/error.ts';
import type { OwnerKind } from '../core/instance.ts';
import type { TenantBudget } from '../lib/budgets.ts';

/** Resources that an instance may use. */
export interface Size {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly processes: number;
}

export interface LedgerOptions {
  /** Resources of the machine. */
  readonly machine: Size;
  /**
   * Factors by which each resource may be reserved beyond the machine's size: most instances use less than
   * their limit.
   */
  readonly overcommit: { readonly cpu: number; readonly memory: number; readonly processes: number };
  /** Memory for the bodies of all open calls. */
  readonly openCallBytes: TenantBudget;
}

const RESOURCES = [
  { name: 'cpuMillis', text: 'CPU', unit: 'millicores', setting: 'overcommit.cpu' },
  { name: 'memoryMb', text: 'memory', unit: 'MiB', setting: 'overcommit.memory' },
  { name: 'processes', text: 'processes', unit: 'processes', setting: 'overcommit.processes' },
] as const;

const OWNERS: readonly { readonly kind: OwnerKind; readonly text: string }[] = [
  { kind: 'agent', text: 'agents' },
  { kind: 'function', text: 'functions' },
  { kind: 'job', text: 'jobs' },
  { kind: 'build', text: 'builds of environments' },
];

/** Codes of a machine without capacity, for calls of functions. */
const MACHINE_FULL = { number: SERVICE_CODES.machineFull.code, retryAfterSeconds: 5 };

/**
 * Reservations of the machine's resources by agents, functions, jobs and builds. An instance counts while its
 * sandbox may run. A request for more than the machine has counts as the whole machine, because the instance
 * cannot use more.
 */
export class Ledger {
  readonly openCallBytes: TenantBudget;
  readonly #machine: Size;
  readonly #limit: Size;
  readonly #reserved: Readonly<Record<OwnerKind, { -readonly [K in keyof Size]: number }>> = {
    agent: { cpuMillis: 0, memoryMb: 0, processes: 0 },
    function: { cpuMillis: 0, memoryMb: 0, processes: 0 },
    job: { cpuMillis: 0, memoryMb: 0, processes: 0 },
    build: { cpuMillis: 0, memoryMb: 0, processes: 0 },
  };
  readonly #listeners = new Set<() => void>();
  /** True if a request was refused since the last release. */
  #isShort = false;

  constructor({ machine, overcommit, openCallBytes }: LedgerOptions) {
    this.#machine = machine;
    this.#limit = {
      cpuMillis: machine.cpuMillis * overcommit.cpu,
      memoryMb: machine.memoryMb * overcommit.memory,
      processes: machine.processes * overcommit.processes,
    };
    this.openCallBytes = openCallBytes;
  }

  /** Returns true if the size fits the machine itself, without overcommit. */
  isWithinMachine(size: Pick<Size, 'cpuMillis' | 'memoryMb'>): boolean {
    return size.cpuMillis <= this.#machine.cpuMillis && size.memoryMb <= this.#machine.memoryMb;
  }

  /** Returns true if an instance of this size may start now. After false, wait for `onRelease`. */
  fits(size: Size): boolean {
    if (this.#lacking(size) === undefined) return true;
    this.#isShort = true;
    return false;
  }

  /**
   * Returns why an instance of this size may not start now, with the holders of the resource. undefined: it
   * may. `replaced`: reservation that it would replace.
   */
  refusal(size: Size, replaced?: Size): ServiceError | undefined {
    const lacking = this.#lacking(size, replaced);
    if (lacking === undefined) return undefined;
    this.#isShort = true;
    const { name, text, unit, setting } = lacking;
    const holders = OWNERS.filter(({ kind }) => this.#reserved[kind][name] > 0);
    const held = holders.map(({ kind, text: owner }) => `${owner} ${this.#reserved[kind][name]}`).join(', ');
    return resourceExhausted(
      `the machine does not have enough free ${text}: ${this.#countOf(size, name)} of ${this.#limit[name]} ${unit} are requested; reserved are ${held || 'none'} (setting ${setting})`,
      MACHINE_FULL,
    );
  }

  /** Reserves the size of an instance. A running instance is counted even beyond the limits. */
  reserve(kind: OwnerKind, size: Size): void {
    this.#count(kind, size, 1);
  }

  release(kind: OwnerKind, size: Size): void {
    this.#count(kind, size, -1);
    if (!this.#isShort) return;
    this.#isShort = false;
    for (const listener of this.#listeners) listener();
  }

  /** Changes a reservation. No waiting request gets its capacity in between. */
  resize(kind: OwnerKind, from: Size, to: Size): void {
    this.reserve(kind, to);
    this.release(kind, from);
  }

  /** Subscribes to releases that follow a refusal. */
  onRelease(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Returns the reservations of each kind, and the limit of their sum. */
  get reservations(): { readonly by: Readonly<Record<OwnerKind, Size>>; readonly limit: Size } {
    return { by: this.#reserved, limit: this.#limit };
  }

  /** Returns the first resource that does not suffice. */
  #lacking(size: Size, held?: Size): (typeof RESOURCES)[number] | undefined {
    const others = (name: keyof Size) => this.#sum(name) - (held === undefined ? 0 : this.#countOf(held, name));
    return RESOURCES.find(({ name }) => others(name) + this.#countOf(size, name) > this.#limit[name]);
  }

  #sum(name: keyof Size): number {
    let sum = 0;
    for (const { kind } of OWNERS) sum += this.#reserved[kind][name];
    return sum;
  }

  #countOf(size: Size, name: keyof Size): number {
    return Math.min(size[name], this.#machine[name]);
  }

  #count(kind: OwnerKind, size: Size, sign: 1 | -1): void {
    for (const { name } of RESOURCES) this.#reserved[kind][name] += sign * this.#countOf(size, name);
  }
}

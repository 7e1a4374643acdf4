import { SERVICE_CODES } from '../core/codes.ts';
import { resourceExhausted, type ServiceError } from '../core/error.ts';
import type { OwnerKind } from '../core/instance.ts';
import type { OpenCallBytes } from './open-call-bytes.ts';

/** What an instance may use. */
export interface Size {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly processes: number;
}

export interface LedgerOptions {
  /** What the machine has. */
  readonly machine: Size;
  /** How many times what it has may be promised: most instances do not use what they may. */
  readonly overcommit: { readonly cpu: number; readonly memory: number; readonly processes: number };
  /** The memory for bodies of open calls, of everybody together. */
  readonly openCallBytes: OpenCallBytes;
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

/** The numbers are those of a machine without capacity, for calls of functions. */
const MACHINE_FULL = { number: SERVICE_CODES.machineFull.code, retryAfterSeconds: 5 };

/**
 * The promises of the machine to agents, functions, jobs and builds together. An instance counts for as long as its sandbox may run. One
 * that may use more than the machine has counts as much as the machine has: it cannot use more.
 */
export class Ledger {
  readonly openCallBytes: OpenCallBytes;
  readonly #machine: Size;
  readonly #limit: Size;
  readonly #taken: Readonly<Record<OwnerKind, { -readonly [K in keyof Size]: number }>> = {
    agent: { cpuMillis: 0, memoryMb: 0, processes: 0 },
    function: { cpuMillis: 0, memoryMb: 0, processes: 0 },
    job: { cpuMillis: 0, memoryMb: 0, processes: 0 },
    build: { cpuMillis: 0, memoryMb: 0, processes: 0 },
  };
  readonly #listeners = new Set<() => void>();
  /** Somebody was refused since the last time that anything was given back. */
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

  /** Whether the machine itself, without promising anything twice, is as large as that. */
  isWithinMachine(size: Pick<Size, 'cpuMillis' | 'memoryMb'>): boolean {
    return size.cpuMillis <= this.#machine.cpuMillis && size.memoryMb <= this.#machine.memoryMb;
  }

  /** Whether an instance of this size may start now. After a no, wait for `onGiven`. */
  fits(size: Size): boolean {
    if (this.#lacking(size) === undefined) return true;
    this.#isShort = true;
    return false;
  }

  /** Why an instance of this size may not start now: what is full, and who holds it. undefined: it may. */
  refusal(size: Size): ServiceError | undefined {
    const lacking = this.#lacking(size);
    if (lacking === undefined) return undefined;
    this.#isShort = true;
    const { name, text, unit, setting } = lacking;
    const holders = OWNERS.filter(({ kind }) => this.#taken[kind][name] > 0);
    const held = holders.map(({ kind, text: owner }) => `${owner} ${this.#taken[kind][name]}`).join(', ');
    return resourceExhausted(
      `the machine has no ${text} left to promise: ${this.#countOf(size, name)} of ${this.#limit[name]} ${unit} are asked for, and held are ${held || 'none'} (setting ${setting})`,
      MACHINE_FULL,
    );
  }

  /** Counts an instance; also one that runs already, whatever the limits say. */
  take(kind: OwnerKind, size: Size): void {
    this.#count(kind, size, 1);
  }

  give(kind: OwnerKind, size: Size): void {
    this.#count(kind, size, -1);
    if (!this.#isShort) return;
    this.#isShort = false;
    for (const listener of this.#listeners) listener();
  }

  /** Told when something was given back after somebody had been refused. */
  onGiven(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** What each kind holds, and what may be held in all. */
  get promised(): { readonly by: Readonly<Record<OwnerKind, Size>>; readonly limit: Size } {
    return { by: this.#taken, limit: this.#limit };
  }

  /** The first resource of which there is too little. */
  #lacking(size: Size): (typeof RESOURCES)[number] | undefined {
    return RESOURCES.find(({ name }) => this.#sum(name) + this.#countOf(size, name) > this.#limit[name]);
  }

  #sum(name: keyof Size): number {
    let sum = 0;
    for (const { kind } of OWNERS) sum += this.#taken[kind][name];
    return sum;
  }

  #countOf(size: Size, name: keyof Size): number {
    return Math.min(size[name], this.#machine[name]);
  }

  #count(kind: OwnerKind, size: Size, sign: 1 | -1): void {
    for (const { name } of RESOURCES) this.#taken[kind][name] += sign * this.#countOf(size, name);
  }
}

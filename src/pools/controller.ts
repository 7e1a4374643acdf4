import { messageOf, ServiceError } from '../core/error.ts';
import type { Pool, PoolSpec } from '../core/pool.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { PoolBackend } from '../sandbox/pools.ts';
import { decide, type Plan, type PoolAction } from './policy.ts';

export interface PoolControllerOptions {
  readonly records: PoolRecords;
  /**
   * Returns the backend. It is created on the first use, since the cluster may be unavailable for a while.
   */
  readonly backend: () => Promise<PoolBackend>;
  /** Returns true if this replica manages the pools. */
  readonly isHeld: () => boolean;
  readonly log: Log;
}

/** Part of `PoolRegistry` that the controller uses. */
export interface PoolRecords {
  all(): Promise<readonly Pool[]>;
  report(id: string, report: Omit<Pool, 'spec'>): Promise<boolean>;
  remove(id: string): Promise<void>;
  /** Returns the reason why a pool must have no pods, or null. */
  refusal(spec: PoolSpec): string | null;
}

/** Delay of a pass, so that simultaneous changes are handled together. */
const SETTLE_MS = 30;
const AT_ONCE = 8;
/** Interval of passes over all pools, in addition to the watch: a record may have been changed by hand. */
const SWEEP_MS = 30_000;
const OPEN_AGAIN = { firstMs: 500, longestMs: 15_000 };
const AGAIN = { firstMs: 500, longestMs: 60_000 };
const REPAIRS = { firstMs: 1_000, longestMs: 120_000 };
/** Time without broken pods after which the count of repairs starts again. */
const HEALTHY_MS = 300_000;
const LONGEST_TIMER_MS = 3_600_000;

/** State of a pool between two passes. */
interface Memory {
  failures: number;
  /** Error of the last attempt to make the pool, with the spec of that attempt. */
  problem: { readonly spec: string; readonly text: string } | null;
  notBeforeMs: number;
  repairs: number;
  repairedAtMs: number;
  keptAtLeast: number;
  wakeAtMs: number;
  readonly warned: Set<string>;
}

/**
 * Makes the pools of the cluster match their records, and reports the state of the cluster in the records.
 * One replica does so. Two may do so for a moment, since each step applies only to the state for which it was
 * decided. The watch of the backend triggers the passes.
 */
export class PoolController {
  readonly #options: PoolControllerOptions;
  readonly #memories = new Map<string, Memory>();
  readonly #dirty = new Set<string>();
  readonly #sweeps: Interval;
  #backend: PoolBackend | undefined;
  #records = new Map<string, Pool>();
  #isStale = true;
  #openings = 0;
  #running: Promise<void> | null = null;
  #timer: NodeJS.Timeout | undefined;
  /** By the clock of `performance`, like the timer: the machine's clock may jump. */
  #timerAtMs = Number.POSITIVE_INFINITY;
  readonly #closing = new AbortController();
  #end: () => void = () => undefined;

  constructor(options: PoolControllerOptions) {
    this.#options = options;
    this.#sweeps = new Interval(SWEEP_MS, async () => this.requestPass());
  }

  /** Starts the passes in the background. Never fails. */
  start(): void {
    this.#sweeps.start();
    this.requestPass();
  }

  /**
   * Requests a pass over all pools after records have changed, or after this replica began or ceased to
   * manage them.
   */
  requestPass(): void {
    this.#isStale = true;
    this.#wakeAt(Date.now());
  }

  async close(): Promise<void> {
    this.#closing.abort();
    clearTimeout(this.#timer);
    this.#end();
    await this.#sweeps.close();
    await this.#running;
  }

  #wakeAt(atMs: number): void {
    if (this.#closing.signal.aborted || atMs === Number.POSITIVE_INFINITY) return;
    const waitMs = Math.min(Math.max(SETTLE_MS, atMs - Date.now()), LONGEST_TIMER_MS);
    const dueMs = performance.now() + waitMs;
    if (dueMs >= this.#timerAtMs) return;
    clearTimeout(this.#timer);
    this.#timerAtMs = dueMs;
    this.#timer = setTimeout(() => {
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      // Changes that arrive during a pass are handled after it.
      this.#running ??= this.#round().finally(() => {
        this.#running = null;
        this.#wakeForNext();
      });
    }, waitMs).unref();
  }

  #wakeForNext(): void {
    if (this.#dirty.size > 0 || this.#isStale) this.#wakeAt(Date.now());
    else this.#wakeAt(Math.min(...[...this.#memories.values()].map(({ wakeAtMs }) => wakeAtMs)));
  }

  /** Runs one pass. Never rejects. */
  async #round(): Promise<void> {
    try {
      if (!this.#options.isHeld()) {
        // The replica that manages the pools meanwhile has newer knowledge.
        this.#memories.clear();
        this.#dirty.clear();
        this.#isStale = false;
        return;
      }
      const backend = await this.#open();
      if (backend === null) return;
      const nowMs = Date.now();
      for (const [id, { wakeAtMs }] of this.#memories) if (wakeAtMs <= nowMs) this.#dirty.add(id);
      // The ids are read before the records: every pool of the cluster had a record first.
      const known = new Set(backend.ids());
      const hasUnknown = [...this.#dirty].some(id => known.has(id) && !this.#records.has(id));
      if (this.#isStale || hasUnknown) await this.#read(known);
      const due = [...this.#dirty].filter(id => this.#records.has(id) || known.has(id));
      this.#dirty.clear();
      await forEachOf(due, AT_ONCE, id => this.#reconcile(backend, id));
      for (const id of this.#memories.keys()) {
        if (!this.#records.has(id) && !backend.ids().has(id)) this.#memories.delete(id);
      }
    } catch (error) {
      this.#options.log.warn({ problem: messageOf(error) }, 'cannot reconcile pools; retrying');
      this.#isStale = true;
      await pause(AGAIN.firstMs, this.#closing.signal);
    }
  }

  async #read(known: ReadonlySet<string>): Promise<void> {
    this.#isStale = false;
    try {
      this.#records = new Map((await this.#options.records.all()).map(pool => [pool.spec.id, pool]));
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
    for (const id of [...this.#records.keys(), ...known]) this.#dirty.add(id);
  }

  /**
   * Returns the backend; null when the cluster is unavailable or its known state is outdated. The caller
   * retries.
   */
  async #open(): Promise<PoolBackend | null> {
    if (this.#backend?.isCurrent) {
      this.#openings = 0;
      return this.#backend;
    }
    const { log } = this.#options;
    let problem = 'it does not answer';
    try {
      if (this.#backend === undefined) {
        const backend = await this.#options.backend();
        await backend.open();
        this.#end = backend.onChange(id => {
          this.#dirty.add(id);
          this.#wakeAt(Date.now());
        });
        this.#backend = backend;
        this.#isStale = true;
        if (backend.isCurrent) return backend;
      }
    } catch (error) {
      problem = messageOf(error);
    }
    this.#openings += 1;
    if (this.#openings === 3) log.warn({ problem }, 'kubernetes is not reachable for pools; retrying');
    await pause(backoffMs(OPEN_AGAIN, this.#openings), this.#closing.signal);
    this.#isStale = true;
    return null;
  }

  async #reconcile(backend: PoolBackend, id: string): Promise<void> {
    if (this.#closing.signal.aborted || !this.#options.isHeld()) return;
    const memory = this.#memoryOf(id);
    const pool = this.#records.get(id) ?? null;
    const plan = this.#planFor(backend, id, pool, memory);
    memory.wakeAtMs = plan.wakeAtMs;
    try {
      if (pool !== null && plan.report !== null && !(await this.#report(pool, plan.report))) return;
      if (plan.isGone && pool !== null) {
        await this.#options.records.remove(id);
        this.#isStale = true;
        return;
      }
      await this.#warn(backend, id, pool, plan, memory);
      const nowMs = Date.now();
      if (memory.notBeforeMs > nowMs) {
        memory.wakeAtMs = Math.min(memory.wakeAtMs, memory.notBeforeMs);
        return;
      }
      await forEachOf(plan.actions, AT_ONCE, action => this.#act(backend, id, pool, action, memory));
      memory.failures = 0;
    } catch (error) {
      this.#failed(id, error, memory);
    }
  }

  #planFor(backend: PoolBackend, id: string, pool: Pool | null, memory: Memory): Plan {
    const nowMs = Date.now();
    const refused = pool === null ? null : this.#options.records.refusal(pool.spec);
    if (pool !== null && memory.problem !== null && memory.problem.spec !== JSON.stringify(pool.spec)) {
      memory.problem = null;
      memory.notBeforeMs = 0;
    }
    if (nowMs - memory.repairedAtMs > HEALTHY_MS) memory.repairs = 0;
    const pauseMs = memory.repairs === 0 ? 0 : backoffMs(REPAIRS, memory.repairs);
    return decide({
      pool,
      view: backend.view(id),
      nowMs,
      refusal: refused,
      problem: memory.problem?.text ?? null,
      mayMake: memory.notBeforeMs <= nowMs,
      mayRepairAtMs: memory.repairedAtMs + pauseMs,
    });
  }

  /**
   * Stores the report of a pool. Returns false when its stored state has changed; the records are then read
   * again.
   */
  async #report(pool: Pool, report: Omit<Pool, 'spec'>): Promise<boolean> {
    const { id } = pool.spec;
    const isSame = pool.status === report.status && pool.msg === report.msg && pool.readyCount === report.readyCount;
    if (isSame) return true;
    if (await this.#options.records.report(id, report)) {
      if (this.#records.get(id) === pool) this.#records.set(id, { ...pool, ...report });
      // The new state may require actions.
      if (pool.status !== report.status) this.#dirty.add(id);
      return true;
    }
    this.#isStale = true;
    return false;
  }

  async #warn(backend: PoolBackend, id: string, pool: Pool | null, { overdue }: Plan, memory: Memory): Promise<void> {
    const fresh = overdue.filter(({ uid }) => !memory.warned.has(uid));
    const still = new Set(overdue.map(({ uid }) => uid));
    for (const uid of memory.warned) if (!still.has(uid)) memory.warned.delete(uid);
    const [first] = fresh;
    if (first === undefined || pool === null) return;
    for (const { uid } of fresh) memory.warned.add(uid);
    const seconds = pool.spec.pod_pending_duration_threshold;
    const why = first.problem === '' ? '' : `: ${first.problem}`;
    const names = fresh.map(({ name }) => name).join(', ');
    const text = `pods of the pool ${id} are pending for more than ${seconds} s (${names})${why}`;
    this.#options.log.warn({ pool: id, pods: fresh.length }, text);
    await backend.warn(id, 'PodPending', text);
  }

  async #act(backend: PoolBackend, id: string, pool: Pool | null, action: PoolAction, memory: Memory): Promise<void> {
    switch (action.do) {
      case 'apply':
        if (pool !== null) await this.#apply(backend, pool.spec, action.replicas, memory);
        break;
      case 'scale':
        await backend.scale(id, action.from, action.to);
        break;
      case 'keepAtLeast':
        if (memory.keptAtLeast === action.replicas) break;
        await backend.keepAtLeast(id, action.replicas);
        memory.keptAtLeast = action.replicas;
        break;
      case 'retire':
        await backend.retire(action.pod);
        break;
      case 'remove':
        await backend.remove(action.pod);
        break;
      case 'repair':
        if (!(await backend.remove(action.pod))) break;
        memory.repairs += 1;
        memory.repairedAtMs = Date.now();
        break;
      case 'disband':
        await backend.disband(id);
        break;
    }
  }

  async #apply(backend: PoolBackend, spec: PoolSpec, replicas: number, memory: Memory): Promise<void> {
    try {
      await backend.apply(spec, replicas);
      if (memory.problem !== null) this.#dirty.add(spec.id);
      memory.problem = null;
      memory.keptAtLeast = 0;
    } catch (error) {
      // An unavailable cluster is not a problem of the pool.
      if (!isAway(error)) memory.problem = { spec: JSON.stringify(spec), text: messageOf(error) };
      throw error;
    }
  }

  #failed(id: string, error: unknown, memory: Memory): void {
    const problem = messageOf(error);
    memory.failures += 1;
    memory.notBeforeMs = Date.now() + backoffMs(AGAIN, memory.failures);
    if (!isAway(error) || memory.failures === 3) {
      this.#options.log.warn({ pool: id, problem }, 'change of pool failed; retrying');
    }
    this.#dirty.add(id);
    memory.wakeAtMs = memory.notBeforeMs;
  }

  #memoryOf(id: string): Memory {
    let memory = this.#memories.get(id);
    if (memory === undefined) {
      memory = {
        ...{ failures: 0, problem: null, notBeforeMs: 0, repairs: 0, repairedAtMs: 0, keptAtLeast: 0 },
        ...{ wakeAtMs: Number.POSITIVE_INFINITY, warned: new Set() },
      };
      this.#memories.set(id, memory);
    }
    return memory;
  }
}

function isAway(error: unknown): boolean {
  return error instanceof ServiceError && (error.code === 'unavailable' || error.code === 'deadline_exceeded');
}

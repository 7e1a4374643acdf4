import { LRUCache } from 'lru-cache';
import type { Registry } from 'prom-client';
import { CallCounts, type CountedCalls, countedOf } from './call-counts.ts';
import type { FastHistogram, Observer } from './metric-parts.ts';
import { histogram, outcomeLabel, outcomesOf, remembered } from './metric-parts.ts';

/** Durations of the stages of a function call, in milliseconds. */
export interface FunctionTimings {
  readonly queueMs: number;
  /** Duration of the instance's start; 0: no start was needed. */
  readonly startMs: number;
  readonly loadMs: number;
}

/** Maximum number of functions with their own label. Clients choose names, so labels need a bound. */
const MAX_FUNCTION_LABELS = 1000;
/** Maximum number of deleted functions that are remembered, for calls that still run. */
const MAX_GONE_FUNCTIONS = 10_000;

interface FunctionObservers {
  readonly tenant: string;
  readonly name: string;
  readonly queue: Observer;
  readonly calls: Map<string, Observer>;
}

/**
 * The series of each function, which end when the function is deleted. The counts of the service only grow.
 */
export class FunctionMetrics {
  readonly #calls: FastHistogram;
  readonly #queues: FastHistogram;
  readonly #coldStarts: FastHistogram;
  readonly #observers = new Map<string, Map<string, FunctionObservers>>();
  #labels = 0;
  /** Calls of deleted functions, by outcome and bucket. */
  readonly #deletedCalls = new Map<string, number[]>();
  /** Times of deletions (`performance.now`). Calls that began before the deletion create no series. */
  readonly #deletedMs = new LRUCache<string, number>({ max: MAX_GONE_FUNCTIONS });

  constructor(registry: Registry) {
    this.#calls = histogram('rookery_function_invocation_seconds', registry);
    this.#queues = histogram('rookery_function_queue_seconds', registry);
    this.#coldStarts = histogram('rookery_function_cold_start_seconds', registry);
  }

  /**
   * Counts a call that ended. `code`: `ok` or the failure's code. `timings` is null for a call without a
   * slot.
   */
  invoked(tenant: string, name: string, code: string, seconds: number, timings: FunctionTimings | null): void {
    const deletedMs = this.#deletedMs.size > 0 ? (this.#deletedMs.get(functionKey(tenant, name)) ?? 0) : 0;
    if (deletedMs > 0 && performance.now() - seconds * 1000 <= deletedMs) {
      const one = new CallCounts();
      one.observe(seconds, false);
      this.#countDeleted(outcomeLabel(code), one.buckets);
      return;
    }
    const observers = this.#observersOf(tenant, name);
    const label = outcomeLabel(code);
    remembered(observers.calls, label, () => this.#calls.labels(observers.tenant, observers.name, label)).observe(
      seconds,
    );
    if (timings === null) return;
    observers.queue.observe(timings.queueMs / 1000);
    if (timings.startMs === 0) return;
    this.#coldStarts.labels('start').observe(timings.startMs / 1000);
    this.#coldStarts.labels('load').observe(timings.loadMs / 1000);
  }

  /**
   * Ends the series of a deleted function, and frees its label. Returns false when the function has no
   * series.
   */
  deleted(tenant: string, name: string): boolean {
    this.#deletedMs.set(functionKey(tenant, name), performance.now());
    const byName = this.#observers.get(tenant);
    const deleted = byName?.get(name);
    if (byName === undefined || deleted === undefined) return false;
    for (const [outcome, counts] of outcomesOf(deleted.calls)) this.#countDeleted(outcome, counts);
    byName.delete(name);
    if (byName.size === 0) this.#observers.delete(tenant);
    this.#labels -= 1;
    for (const one of [this.#calls, this.#queues]) {
      one.forget(([ofTenant, ofName]) => ofTenant === tenant && ofName === name);
    }
    return true;
  }

  has(tenant: string, name: string): boolean {
    return this.#observers.get(tenant)?.has(name) === true;
  }

  /** Returns the counts of all calls since the start, including those of deleted functions. */
  outcomes(): (readonly [string, readonly number[]])[] {
    return [...this.#deletedCalls, ...this.#all().flatMap(([, one]) => outcomesOf(one.calls))];
  }

  /** Returns the counts of each function, by `functionKey`. */
  counted(): (readonly [string, CountedCalls])[] {
    return this.#all().map(([key, one]) => [key, countedOf(outcomesOf(one.calls))] as const);
  }

  #countDeleted(outcome: string, counts: readonly number[]): void {
    const sums = remembered(this.#deletedCalls, outcome, () => counts.map(() => 0));
    for (const [at, count] of counts.entries()) sums[at] = (sums[at] ?? 0) + count;
  }

  #observersOf(tenant: string, name: string): FunctionObservers {
    const known = this.#observers.get(tenant)?.get(name);
    if (known !== undefined) return known;
    // Functions above the bound share one label, which belongs to no tenant.
    const [ofTenant, ofName] = this.#labels < MAX_FUNCTION_LABELS ? [tenant, name] : ['', 'other'];
    const byName = remembered(this.#observers, ofTenant, () => new Map<string, FunctionObservers>());
    return remembered(byName, ofName, () => {
      // The shared label is not counted: the bound is for functions.
      if (ofTenant === tenant) this.#labels += 1;
      return { tenant: ofTenant, name: ofName, queue: this.#queues.labels(ofTenant, ofName), calls: new Map() };
    });
  }

  #all(): (readonly [string, FunctionObservers])[] {
    return [...this.#observers].flatMap(([tenant, byName]) =>
      [...byName].map(([name, observers]) => [functionKey(tenant, name), observers] as const),
    );
  }
}

/** Returns the key of a function, unique over all tenants. */
export function functionKey(tenant: string, name: string): string {
  return `${tenant}/${name}`;
}

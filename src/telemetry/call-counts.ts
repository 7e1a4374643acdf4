import { CALL_SECONDS } from './metric-table.ts';

/** Numbers of calls since counting began. */
export interface CountedCalls {
  /** Counts by bucket of `CALL_SECONDS`; the last bucket counts calls above the highest bound. */
  readonly buckets: readonly number[];
  /** Number of calls that neither succeeded nor were cancelled by their clients. */
  readonly errors: number;
}

export const NO_CALLS: CountedCalls = { buckets: new Array<number>(CALL_SECONDS.length + 1).fill(0), errors: 0 };

/** The calls of an agent. Counts on the path of every call, so an observation adds to one number, or two. */
export class CallCounts implements CountedCalls {
  readonly buckets: number[] = [...NO_CALLS.buckets];
  errors = 0;

  observe(seconds: number, isError: boolean): void {
    let at = 0;
    while (at < CALL_SECONDS.length && seconds > (CALL_SECONDS[at] as number)) at++;
    (this.buckets[at] as number)++;
    if (isError) this.errors++;
  }
}

/** Checks for a failure: `ok` is none, and neither is a client that disconnected. */
export function isErrorOutcome(outcome: string): boolean {
  return outcome !== 'ok' && outcome !== 'cancelled';
}

/** Adds up the series of a histogram over all outcomes. */
export function countedOf(series: Iterable<readonly [outcome: string, counts: readonly number[]]>): CountedCalls {
  const buckets = [...NO_CALLS.buckets];
  let errors = 0;
  for (const [outcome, counts] of series) {
    for (const [at, count] of counts.entries()) {
      buckets[at] = (buckets[at] ?? 0) + count;
      if (isErrorOutcome(outcome)) errors += count;
    }
  }
  return { buckets, errors };
}

export function sumOf(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}

/** Returns the counts between two samples. A counter that was reset counts as zero, never as negative. */
export function between(before: CountedCalls, now: CountedCalls): CountedCalls {
  return {
    buckets: now.buckets.map((count, at) => Math.max(0, count - (before.buckets[at] ?? 0))),
    errors: Math.max(0, now.errors - before.errors),
  };
}

/**
 * Returns the quantile in seconds; NaN without calls.
 * Interpolates linearly inside a bucket. Above the highest bound, returns that bound.
 */
export function quantile({ buckets }: CountedCalls, share: number): number {
  const wanted = sumOf(buckets) * share;
  if (wanted === 0) return Number.NaN;
  let below = 0;
  for (const [at, count] of buckets.entries()) {
    if (count > 0 && below + count >= wanted) {
      const lower = CALL_SECONDS[at - 1] ?? 0;
      const upper = CALL_SECONDS[at] ?? lower;
      return lower + ((upper - lower) * (wanted - below)) / count;
    }
    below += count;
  }
  return Number.NaN;
}

/** Usage of an agent or a function. */
export interface SubjectUsage {
  /** Calls of about the last hour. */
  readonly calls: number;
  readonly errors: number;
  /** Null without calls. */
  readonly p99_ms: number | null;
  /** Null: unknown, or nothing runs. */
  readonly cpu_millis: number | null;
  readonly memory_mb: number | null;
  /** Running instances of a function. */
  readonly instances?: number;
}

const SLOT_SECONDS = 300;
const SLOTS = 12;

/** Counts at the beginning of each of the last twelve slots of 5 minutes. */
export class RecentCounts {
  #marks: { readonly slot: number; readonly counted: CountedCalls }[] = [];

  /** Stores `counted` if a slot begins. It has the calls before the slot. */
  begin(seconds: number, counted: CountedCalls): void {
    const slot = Math.floor(seconds / SLOT_SECONDS);
    if (this.#marks.at(-1)?.slot === slot) return;
    this.#marks = [...this.#marks.filter(mark => mark.slot > slot - SLOTS), { slot, counted }];
  }

  /** Returns the calls of the last 55 to 60 minutes. */
  usage(seconds: number, now: CountedCalls): Pick<SubjectUsage, 'calls' | 'errors' | 'p99_ms'> {
    const first = Math.floor(seconds / SLOT_SECONDS) - SLOTS + 1;
    const begin = this.#marks.find(mark => mark.slot >= first)?.counted ?? now;
    const added = between(begin, now);
    const p99Ms = quantile(added, 0.99) * 1000;
    return {
      calls: sumOf(added.buckets),
      errors: added.errors,
      p99_ms: Number.isFinite(p99Ms) ? Number(p99Ms.toPrecision(6)) : null,
    };
  }
}

export type UsageKind = 'agent' | 'function';

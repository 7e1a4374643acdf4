import { CALL_SECONDS } from './metric-table.ts';

/** Calls up to now. */
export interface CountedCalls {
  /** By bucket of `CALL_SECONDS`; the last: what is above. */
  readonly buckets: readonly number[];
  /** Those that neither succeeded nor were given up by their callers. */
  readonly errors: number;
}

export const NO_CALLS: CountedCalls = { buckets: new Array<number>(CALL_SECONDS.length + 1).fill(0), errors: 0 };

/** The calls of one agent. On the path of every call: it adds to one number, or two. */
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

/** `ok` is none, and neither is a caller that left. */
export function isErrorOutcome(outcome: string): boolean {
  return outcome !== 'ok' && outcome !== 'cancelled';
}

/** Series of one histogram by their outcomes, as one. */
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

/** What was counted between two looks. One that counts from nothing again has counted nothing less. */
export function between(before: CountedCalls, now: CountedCalls): CountedCalls {
  return {
    buckets: now.buckets.map((count, at) => Math.max(0, count - (before.buckets[at] ?? 0))),
    errors: Math.max(0, now.errors - before.errors),
  };
}

/** Seconds; between the bounds of its bucket in a straight line, above the last bound that bound. Not a number without calls. */
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

/** Number of a row, and the number to which it is compared. */
export interface Measurement {
  readonly what: string;
  readonly value: number;
  readonly unit: 'ms' | 'µs' | 's' | '/s' | 'MB' | '%' | '';
  /** Other side of the ratio, measured in the same run in alternation. */
  readonly against?: { readonly what: string; readonly value: number };
  /** Bound that the design sets for `value`, or for `value / against`. */
  readonly target?: Target;
}

export interface Target {
  readonly of: 'value' | 'ratio';
  readonly is: 'at most' | 'at least';
  readonly bound: number;
}

export function ratioOf(measurement: Measurement): number | null {
  const { against, value } = measurement;
  return against === undefined || against.value === 0 ? null : value / against.value;
}

/** Returns true if the target is met, or null if there is no target or no ratio. */
export function isMet(measurement: Measurement): boolean | null {
  const { target } = measurement;
  if (target === undefined) return null;
  const seen = target.of === 'value' ? measurement.value : ratioOf(measurement);
  if (seen === null) return null;
  return target.is === 'at most' ? seen <= target.bound : seen >= target.bound;
}

export function atMost(of: Target['of'], bound: number): Target {
  return { of, is: 'at most', bound };
}

export function atLeast(of: Target['of'], bound: number): Target {
  return { of, is: 'at least', bound };
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

export const delay = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms));

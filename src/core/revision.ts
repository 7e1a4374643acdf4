const REVISION_ID = /^\d{17}$/;

/** `2026-11-20 10:00:00.000 UTC`: how function records write a time. */
export function formatTimestamp(ms: number): string {
  return `${new Date(ms).toISOString().replace('T', ' ').slice(0, 23)} UTC`;
}

/** `yyyyMMddHHmmssSSS`, UTC. */
export function formatRevisionId(ms: number): string {
  const iso = new Date(ms).toISOString();
  const part = (from: number) => iso.slice(from, from + 2);
  return iso.slice(0, 4) + part(5) + part(8) + part(11) + part(14) + part(17) + iso.slice(20, 23);
}

/**
 * The id of a function's next revision: the time, or one millisecond after the revision before when the clock did not move
 * on (or went back). So ids of one function strictly increase, as texts too.
 */
export function nextRevisionId(nowMs: number, previous: string | null): string {
  const previousMs = previous === null ? Number.NEGATIVE_INFINITY : parseRevisionId(previous);
  return formatRevisionId(Math.max(nowMs, previousMs + 1));
}

/** `v20261120-100000`: what a version is called when its publisher names none. */
export function defaultVersionNumber(nowMs: number): string {
  const digits = formatRevisionId(nowMs);
  return `v${digits.slice(0, 8)}-${digits.slice(8, 14)}`;
}

/**
 * Two publishes without a number that are at most this far apart are duplicates, across the border of a second too.
 */
export const DEFAULT_VERSION_GAP_MS = 1000;

export function parseRevisionId(id: string): number {
  if (!REVISION_ID.test(id)) throw new RangeError(`not a revision id: ${id}`);
  const part = (from: number, to: number) => Number(id.slice(from, to));
  return Date.UTC(part(0, 4), part(4, 6) - 1, part(6, 8), part(8, 10), part(10, 12), part(12, 14), part(14, 17));
}

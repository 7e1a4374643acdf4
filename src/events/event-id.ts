/**
 * Id of an event: the number of the last known event of each replica's run. The text is `<run>-<number>` for
 * each, with points between. Replicas get each other's events in different orders; such an id has the same
 * meaning on all of them.
 */

/** Number of the last event that was seen, for each run of a replica. */
export type SeenEvents = ReadonlyMap<string, number>;

const PART = /^([0-9a-f]{8})-(\d{1,15})$/;
/** Limit far above the ids of all remembered runs. */
const MAX_CHARS = 8192;

export function formatId(seen: SeenEvents): string {
  let text = '';
  for (const [run, number] of seen) text += `${text === '' ? '' : '.'}${run}-${number}`;
  return text;
}

/** Parses an id. Returns null for any other text. */
export function parseId(text: string): Map<string, number> | null {
  const seen = new Map<string, number>();
  if (text.length > MAX_CHARS) return null;
  for (const part of text.split('.')) {
    const match = PART.exec(part);
    if (match === null) return null;
    seen.set(match[1] as string, Number(match[2]));
  }
  return seen;
}

/** Returns the union of two sets of seen events. */
export function laterOf(one: SeenEvents, other: SeenEvents): Map<string, number> {
  const seen = new Map(one);
  for (const [run, number] of other) seen.set(run, Math.max(number, seen.get(run) ?? 0));
  return seen;
}

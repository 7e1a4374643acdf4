/**
 * The id of an event: how far each replica's own events had been told when it was, as `<run>-<number>` for each with points between them. Replicas
 * hear of each other's events in different orders; such an id says the same on all of them.
 */

/** The number of the last event that was seen, for each run of a replica. */
export type Seen = ReadonlyMap<string, number>;

const PART = /^([0-9a-f]{8})-(\d{1,15})$/;
/** Far more than replicas that are kept in mind. */
const MAX_CHARS = 8192;

export function formatId(seen: Seen): string {
  let text = '';
  for (const [run, number] of seen) text += `${text === '' ? '' : '.'}${run}-${number}`;
  return text;
}

/** Null: it is no id. */
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

/** What has been seen by who has seen both. */
export function laterOf(one: Seen, other: Seen): Map<string, number> {
  const seen = new Map(one);
  for (const [run, number] of other) seen.set(run, Math.max(number, seen.get(run) ?? 0));
  return seen;
}

import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { EventSubject } from '../../src/core/event.ts';
import { LIMITS } from '../../src/core/limits.ts';
import { ask, pathOf, tenant } from './api.ts';
import { isOf } from './event-filter.ts';
import { eventsIn, type LiveEvent, onEvents, recent, useLoaded } from './live.ts';

/** The events about a subject that the service stores and those since then, the newest first. */
export function useEvents(subject: EventSubject): {
  readonly value: readonly LiveEvent[] | undefined;
  readonly error: string;
} {
  const key = JSON.stringify(subject);
  const { value, error } = useLoaded(`events ${key}`, signal => readEvents(subject, signal));
  // A burst has more events than `recent` keeps.
  const since = useRef<LiveEvent[]>([]);
  useEffect(() => {
    since.current = [];
    return onEvents(event => {
      if (event === null || !isOf(event, subject)) return;
      since.current.push(event);
      if (since.current.length > 2 * LIMITS.keptEvents) since.current.splice(0, LIMITS.keptEvents);
    });
  }, [key, tenant.value]);
  const newest = recent.value;
  const merged = useMemo(() => {
    if (value === undefined) return undefined;
    const latest = newest.filter(event => isOf(event, subject)).toReversed();
    return newestFirst([...value, ...since.current, ...latest]);
  }, [value, newest, key]);
  return { value: merged, error };
}

async function readEvents(subject: EventSubject, signal: AbortSignal): Promise<readonly LiveEvent[]> {
  const query = { ...subject, recent: LIMITS.keptEvents, follow: false };
  const answer = await ask(pathOf('followEvents', { query }), { headers: { accept: 'text/event-stream' }, signal });
  return eventsIn((await answer.text()).split('\n\n'));
}

/** Returns each event once. Replicas give the same event different ids. */
function newestFirst(events: readonly LiveEvent[]): readonly LiveEvent[] {
  const found = new Map(events.map(event => [event.key, event]));
  return [...found.values()].sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)).reverse();
}

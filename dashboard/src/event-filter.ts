import { type EventSubject, isAbout, subjectOf } from '../../src/core/event.ts';
import { Heading } from './heading.ts';
import type { LiveEvent } from './live.ts';
import { dayOf, timeOf } from './times.ts';

export const SEVERITIES = ['error', 'warning', 'info'] as const;

/** Lengths of the ranges that end now. */
export const RANGES_MS = { '15m': 15 * 60_000, '1h': 60 * 60_000, '24h': 24 * 60 * 60_000 } as const;

/** Filter of a list of events. An empty text selects everything. */
export interface EventFilter {
  readonly kind: string;
  readonly severity: (typeof SEVERITIES)[number] | '';
  readonly text: string;
  /** `dates`: from `from` to `to`. */
  readonly range: keyof typeof RANGES_MS | 'dates' | '';
  /** Minute in UTC, as `2026-01-31T12:00Z`. */
  readonly from: string;
  /** Minute in UTC, which belongs to the range. */
  readonly to: string;
  readonly subject: EventSubject;
}

const MINUTE_MS = 60_000;

/** Reads the filter of an address. Ignores values that no filter has. */
export function filterOf(query: URLSearchParams): EventFilter {
  const text = (name: string) => query.get(name) ?? '';
  const minute = (name: string) => minuteOf(text(name));
  const [from, to] = [minute('from'), minute('to')];
  const range = ([...Object.keys(RANGES_MS), 'dates'] as const).find(each => each === text('range'));
  return {
    kind: text('kind'),
    severity: SEVERITIES.find(each => each === text('severity')) ?? '',
    text: text('text'),
    range: (range as EventFilter['range'] | undefined) ?? (from === '' && to === '' ? '' : 'dates'),
    from,
    to,
    subject: subjectIn(query),
  };
}

/** Returns the query of an address with the filter. */
export function queryOf({ subject, from, to, ...filter }: EventFilter): URLSearchParams {
  const dates = filter.range === 'dates' ? { from, to } : {};
  const members = Object.entries({ ...subject, ...filter, ...dates });
  return new URLSearchParams(members.filter(([, value]) => value !== ''));
}

/** Reads the first subject of an address. The name of a function may lack `0@`. */
function subjectIn(query: URLSearchParams): EventSubject {
  const [agent, name, job] = ['agent', 'function', 'job'].map(each => query.get(each) ?? '');
  if (agent) return { agent };
  if (name) return { function: subjectOf({ function: name }).function?.replace(/^(?!0@)/, '0@') ?? '' };
  return job ? { job } : {};
}

/** Returns true if the filter selects the event. */
export function matches(event: LiveEvent, filter: EventFilter, nowMs: number): boolean {
  const { kind, severity, text, subject } = filter;
  return (
    (kind === '' || event.type === kind) &&
    (severity === '' || severityOf(event) === severity) &&
    isInRange(Date.parse(event.at), filter, nowMs) &&
    isOf(event, subject) &&
    (text === '' || textOf(event).includes(text.toLowerCase()))
  );
}

/** Returns true if the event is about the subject. */
export function isOf(event: LiveEvent, subject: EventSubject): boolean {
  return isAbout(subjectOf({ ...event }), subject);
}

function isInRange(atMs: number, { range, from, to }: EventFilter, nowMs: number): boolean {
  if (range === '') return true;
  if (range !== 'dates') return atMs >= nowMs - RANGES_MS[range];
  return (from === '' || atMs >= Date.parse(from)) && (to === '' || atMs < Date.parse(to) + MINUTE_MS);
}

/** Returns how bad an event is. A restart and a job's next attempt follow a failure or a command. */
export function severityOf({ type, status, attempt = 1 }: LiveEvent): (typeof SEVERITIES)[number] {
  if (type === 'failed' || type === 'alarm_failed' || status === 'FAILED') return 'error';
  return type === 'restarting' || (status === 'PENDING' && attempt > 1) ? 'warning' : 'info';
}

/** Returns the text in which a search looks. */
function textOf(event: LiveEvent): string {
  const { type, status, namespace, name, instance_id, job, alarm, reason, message, node } = event;
  return [type, status, `${namespace}/${name}`, instance_id, event.function, job, alarm, reason, message, node]
    .join('\n')
    .toLowerCase();
}

/** Returns the events with a heading before each day. Without a heading if all are of the day of `now`. */
export function withDays(events: readonly LiveEvent[], now: Date): readonly (LiveEvent | Heading)[] {
  const today = dayOf(now);
  const rows: (LiveEvent | Heading)[] = [];
  let day = '';
  let isOfToday = true;
  for (const event of events) {
    const date = new Date(event.at);
    const next = dayOf(date);
    if (next !== day) rows.push(new Heading(`${WEEKDAY.format(date)}, ${next}`));
    day = next;
    isOfToday &&= next === today;
    rows.push(event);
  }
  return isOfToday ? events : rows;
}

const WEEKDAY = new Intl.DateTimeFormat('en', { weekday: 'long' });
const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}/;

/** Returns the minute in UTC of a text with a time; `''` for any other text. */
export function minuteOf(text: string): string {
  const date = new Date(TIME.test(text) ? text : '');
  return Number.isNaN(date.getTime()) ? '' : `${date.toISOString().slice(0, 16)}Z`;
}

/** Returns a minute in the browser's zone, as a field of the page has it. */
export function localMinute(minute: string): string {
  const date = new Date(minute);
  return Number.isNaN(date.getTime()) ? '' : `${dayOf(date)}T${timeOf(date).slice(0, 5)}`;
}

import { parseUrn } from './urn.ts';

/** Kinds of events, as the stream names them in `event:`. */
export const EVENT_TYPES = [
  'created',
  'ready',
  'paused',
  'resumed',
  'failed',
  'restarting',
  'stopping',
  'ended',
  'scaled',
  'job',
  'alarm_failed',
] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** Agent, function or job that an event is about. For an instance of a function, the function. */
export interface EventSubject {
  /** Id of an agent. */
  readonly agent?: string;
  /** `0@<service>@<name>`. */
  readonly function?: string;
  readonly job?: string;
}

/** Returns the subject of an event with these fields. */
export function subjectOf(fields: Readonly<Record<string, unknown>>): EventSubject {
  const { owner, instance_id: instance, function: urn, job } = fields;
  if (typeof job === 'string') return { job };
  if (typeof urn === 'string') return { function: parseUrn(urn)?.name ?? urn };
  return owner === 'agent' && typeof instance === 'string' ? { agent: instance } : {};
}

/** Returns the subject of an event of another replica, whose data may be of another version. */
export function subjectOfData(data: string): EventSubject {
  try {
    return subjectOf(Object(JSON.parse(data)));
  } catch {
    return {};
  }
}

/** Subject that a reader wants. Without a member: every subject. */
export type WantedSubject = Readonly<Partial<Record<keyof EventSubject, string | undefined>>>;

/** Returns true if `wanted` is empty, or names the subject `about`. */
export function isAbout(about: EventSubject, wanted: WantedSubject): boolean {
  return (
    (wanted.agent === undefined || wanted.agent === about.agent) &&
    (wanted.function === undefined || wanted.function === about.function) &&
    (wanted.job === undefined || wanted.job === about.job)
  );
}

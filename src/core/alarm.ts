import { Cron } from 'croner';
import { messageOf } from './error.ts';
import { failAtFirst, invalidBody, isJsonObject, type JsonObject } from './json.ts';
import { anything, type Kind, number, text, wrongAt } from './kind.ts';
import { LIMITS } from './limits.ts';
import type { Problem } from './problem.ts';
import { maybe, object, type ValueOf } from './shape.ts';

/** Regular times of an alarm. No member: it is due once. */
export interface AlarmRule {
  readonly everyMs?: number;
  readonly cron?: string;
  /** Zone of `cron`; absent: UTC. */
  readonly tz?: string;
}

/** An alarm of a durable agent. */
export interface Alarm {
  readonly name: string;
  /** Names one due time; the retries of that time have the same id. */
  readonly id: string;
  readonly rule: AlarmRule;
  /** JSON. */
  readonly payload: string;
  readonly scheduledAtMs: number;
  /** Time of the next delivery, later than `scheduledAtMs` for a retry. */
  readonly dueAtMs: number;
  /** Delay after which it is dropped; null: none. */
  readonly maxLateMs: number | null;
  /** Regular times before `scheduledAtMs` that were not delivered. */
  readonly missed: number;
  /** Failed deliveries. */
  readonly attempt: number;
  /** True once all attempts have failed: it is kept, and not delivered. */
  readonly hasFailed: boolean;
  /** Text of the last failure, or `''`. */
  readonly lastError: string;
}

/** An alarm that is given up, with its agent. */
export interface FailedAlarm {
  readonly tenant: string;
  readonly agentId: string;
  /** Namespace and name of the agent. */
  readonly namespace: string;
  readonly name: string;
  readonly alarm: string;
  /** Text of the last failure, or by how much the alarm was late. */
  readonly reason: string;
}

/** A change of the alarms of one agent. Plain data, because the write thread applies it. */
export type AlarmChange =
  | { readonly kind: 'put'; readonly alarm: Alarm }
  /** With an id only this due time. */
  | { readonly kind: 'drop'; readonly name: string; readonly id?: string }
  /** Changes one due time, unless the alarm was replaced meanwhile. */
  | { readonly kind: 'change'; readonly name: string; readonly id: string; readonly to: Partial<Alarm> };

const { alarms: BOUNDS } = LIMITS;
const CRON_FIELDS = 5;
/** The latest time that a `Date` can have. */
const LATEST_MS = 8_640_000_000_000_000;
const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;
const CONTROL = /\p{Cc}/u;
/** Most regular times that are counted as missed. */
const MOST_MISSED = 10_000;
/** A later delivery than this makes up for an outage. */
const ON_TIME_MS = 1_000;

const time: Kind<number> = {
  describe: () => ({
    anyOf: [
      { type: 'string', format: 'date-time' },
      { type: 'integer', minimum: 0 },
    ],
  }),
  read(value, path, problem) {
    const ms = typeof value === 'string' && RFC_3339.test(value) ? Date.parse(value) : value;
    if (typeof ms === 'number' && ms >= 0 && ms <= LATEST_MS) return Math.round(ms);
    return wrongAt(path, 'must be a time of RFC 3339, or milliseconds since 1970', problem);
  },
};

const FIELDS = {
  at: maybe(time, 'Once, at this time: RFC 3339, or milliseconds since 1970. A past time is due now.'),
  after: maybe(number({ min: 0, max: BOUNDS.longestSeconds }), 'Once, this many seconds from now.'),
  every: maybe(
    number({ min: BOUNDS.leastEverySeconds, max: BOUNDS.longestSeconds }),
    'Again and again after this many seconds; first after one interval.',
  ),
  cron: maybe(text({ maxChars: 256 }), 'Again and again, at the times of five fields of cron.'),
  tz: maybe(text({ maxChars: 64 }), 'With `cron`: the zone, for example `Europe/Berlin`. Default: UTC.'),
  payload: maybe(anything, `What the agent gets: JSON of at most ${BOUNDS.payloadBytes / 1024} KiB.`),
  max_late_seconds: maybe(
    number({ min: 0, max: BOUNDS.longestSeconds }),
    'It is dropped if it cannot be delivered within this time. Default: it is delivered late.',
  ),
};

/** The body that sets an alarm. It has exactly one of `at`, `after`, `every` and `cron`. */
export const ALARM = object<ValueOf<typeof FIELDS>>(FIELDS);

const FORMS = ['at', 'after', 'every', 'cron'] as const;

/** Returns what is wrong with the name of an alarm; undefined: nothing. */
export function alarmNameProblem(name: string): string | undefined {
  if (name !== '' && [...name].length <= LIMITS.agentNameChars && !CONTROL.test(name)) return undefined;
  return `must have 1 to ${LIMITS.agentNameChars} characters and no control characters`;
}

/** Reads the body that sets an alarm now. Fails with `invalid_request`. */
export function readAlarm(body: JsonObject, name: string, id: string, nowMs: number): Alarm {
  return alarmOf(body, { name, id }, nowMs, failAtFirst, '');
}

/** Reads the alarms of a SAVE, as JSON. Fails with `invalid_request`. */
export function readSavedAlarms(json: string, newId: () => string, nowMs: number): readonly AlarmChange[] {
  if (json === '') return [];
  const sent: unknown = JSON.parse(json);
  if (!Array.isArray(sent)) throw invalidBody('alarms must be a list');
  return sent.map((each: unknown, index): AlarmChange => {
    const path = `alarms[${index}]`;
    if (!isJsonObject(each) || typeof each.name !== 'string') throw invalidBody(`${path} must have a name`);
    const { name } = each;
    const problem = alarmNameProblem(name);
    if (problem !== undefined) throw invalidBody(`${path}.name ${problem}`);
    if (Object.keys(each).length === 1) return { kind: 'drop', name };
    return { kind: 'put', alarm: alarmOf(each, { name, id: newId() }, nowMs, failAtFirst, path) };
  });
}

function alarmOf(
  body: JsonObject,
  identity: Pick<Alarm, 'name' | 'id'>,
  nowMs: number,
  problem: Problem,
  path: string,
): Alarm {
  const sent = ALARM.read(body, path, problem) as ValueOf<typeof FIELDS>;
  const { at, after, every, cron, tz, payload = null, max_late_seconds: late } = sent;
  if (FORMS.filter(form => sent[form] !== undefined).length !== 1)
    throw invalidBody('exactly one of at, after, every and cron is required');
  if (tz !== undefined && cron === undefined) throw invalidBody('tz needs cron');
  const json = JSON.stringify(payload);
  const bytes = Buffer.byteLength(json);
  if (bytes > BOUNDS.payloadBytes)
    throw invalidBody(`payload has ${bytes} bytes, more than the limit of ${BOUNDS.payloadBytes}`);
  const rule: AlarmRule = {
    ...(every !== undefined && { everyMs: Math.round(every * 1000) }),
    ...(cron !== undefined && { cron, ...(tz !== undefined && { tz }) }),
  };
  const scheduledAtMs = at ?? (after === undefined ? firstTimeOf(rule, nowMs) : nowMs + Math.round(after * 1000));
  return {
    ...identity,
    rule,
    payload: json,
    scheduledAtMs,
    dueAtMs: scheduledAtMs,
    maxLateMs: late === undefined ? null : Math.round(late * 1000),
    missed: 0,
    attempt: 0,
    hasFailed: false,
    lastError: '',
  };
}

/** Returns the first regular time after `nowMs`. Fails with `invalid_request` if there is none. */
function firstTimeOf(rule: AlarmRule, nowMs: number): number {
  const { everyMs, cron } = rule;
  if (everyMs !== undefined) return nowMs + everyMs;
  try {
    if (cron?.trim().split(/\s+/).length !== CRON_FIELDS) throw new Error(`it must have ${CRON_FIELDS} fields`);
    const first = timesOf(rule).nextRun(new Date(nowMs));
    if (first === null) throw new Error('it has no next time');
    return first.getTime();
  } catch (error) {
    throw invalidBody(`cron or tz is wrong: ${messageOf(error)}`);
  }
}

/** Returns alarms by name, after changes that set and cancel some. */
export function withChanges(alarms: readonly Alarm[], changes: readonly AlarmChange[]): readonly Alarm[] {
  const byName = new Map(alarms.map(alarm => [alarm.name, alarm]));
  for (const change of changes) {
    if (change.kind === 'put') byName.set(change.alarm.name, change.alarm);
    else if (change.kind === 'drop') byName.delete(change.name);
  }
  return [...byName.values()].toSorted((one, other) => (one.name < other.name ? -1 : 1));
}

/** Returns what a client sees of an alarm. The payload is absent, because viewers may read this. */
export function alarmView(alarm: Alarm): Record<string, unknown> {
  const { name, id, rule, scheduledAtMs, dueAtMs, maxLateMs, attempt, missed, hasFailed, lastError } = alarm;
  const { everyMs, cron, tz } = rule;
  return {
    name,
    id,
    at: new Date(scheduledAtMs).toISOString(),
    ...(everyMs !== undefined && { every: everyMs / 1000 }),
    ...(cron !== undefined && { cron, tz: tz ?? 'UTC' }),
    ...(maxLateMs !== null && { max_late_seconds: maxLateMs / 1000 }),
    ...(attempt > 0 && !hasFailed && { retry_at: new Date(dueAtMs).toISOString() }),
    attempts: attempt,
    missed,
    failed: hasFailed,
    ...(lastError !== '' && { last_error: lastError }),
  };
}

/** Returns what the agent itself sees of an alarm, as JSON: also its payload. */
export function alarmJson(alarm: Alarm): string {
  return `${JSON.stringify(alarmView(alarm)).slice(0, -1)},"payload":${alarm.payload}}`;
}

function timesOf({ cron = '', tz = 'UTC' }: AlarmRule): Cron {
  return new Cron(cron, { timezone: tz, paused: true });
}

export function isRecurring({ everyMs, cron }: AlarmRule): boolean {
  return everyMs !== undefined || cron !== undefined;
}

/** Regular times from `fromMs` on: those that have passed, and the next one. */
interface PassedTimes {
  /** Passed times after `fromMs`. */
  readonly count: number;
  /** The last one that has passed, at least `fromMs`. */
  readonly lastMs: number;
  /** null: there is no further one. */
  readonly nextMs: number | null;
}

/** Returns the regular times around `nowMs`. `fromMs`: a regular time. */
function passedTimes(rule: AlarmRule, fromMs: number, nowMs: number): PassedTimes {
  const { everyMs } = rule;
  if (everyMs !== undefined) {
    const count = Math.max(0, Math.floor((nowMs - fromMs) / everyMs));
    return { count, lastMs: fromMs + count * everyMs, nextMs: fromMs + (count + 1) * everyMs };
  }
  const times = timesOf(rule);
  let count = 0;
  let last = new Date(fromMs);
  let next = times.nextRun(last);
  while (next !== null && next.getTime() <= nowMs && count < MOST_MISSED) {
    count += 1;
    last = next;
    next = times.nextRun(last);
  }
  if (next !== null && next.getTime() <= nowMs) next = times.nextRun(new Date(nowMs));
  return { count, lastMs: last.getTime(), nextMs: next === null ? null : next.getTime() };
}

/** Returns the change that ends a due time: the alarm gets its next regular time, or is dropped. */
export function afterAlarm(alarm: Alarm, newId: string, nowMs: number, more: Partial<Alarm> = {}): AlarmChange {
  const { name, id, rule, scheduledAtMs } = alarm;
  const next = isRecurring(rule) ? passedTimes(rule, scheduledAtMs, nowMs).nextMs : null;
  if (next === null) return { kind: 'drop', name, id };
  const times = { id: newId, scheduledAtMs: next, dueAtMs: next };
  return { kind: 'change', name, id, to: { ...times, missed: 0, attempt: 0, lastError: '', ...more } };
}

/** Decision about an alarm that is due. */
export type AlarmDecision =
  | { readonly kind: 'deliver'; readonly alarm: Alarm }
  /** The alarm is too late, or makes way for its next regular time. */
  | { readonly kind: 'skip'; readonly change: AlarmChange; readonly isDropped: boolean };

/**
 * Decides about an alarm that is due. After an outage a recurring alarm is delivered once for all times that
 * it has missed, unless its next time is nearer: that one stands for the missed ones then.
 */
export function decideAlarm(alarm: Alarm, newId: string, nowMs: number): AlarmDecision {
  const { name, id, rule, scheduledAtMs, maxLateMs, missed, attempt } = alarm;
  if (attempt > 0) return { kind: 'deliver', alarm };
  const isTooLate = (atMs: number) => maxLateMs !== null && nowMs - atMs > maxLateMs;
  if (!isRecurring(rule)) {
    if (!isTooLate(scheduledAtMs)) return { kind: 'deliver', alarm };
    return { kind: 'skip', change: { kind: 'drop', name, id }, isDropped: true };
  }
  const { count, lastMs, nextMs } = passedTimes(rule, scheduledAtMs, nowMs);
  const lateMs = nowMs - lastMs;
  const isMissed = count > 0 || lateMs > ON_TIME_MS;
  const isNextNearer = nextMs !== null && isMissed && nextMs - nowMs < lateMs;
  if (!isNextNearer && !isTooLate(lastMs))
    return { kind: 'deliver', alarm: { ...alarm, scheduledAtMs: lastMs, missed: missed + count } };
  const change = afterAlarm(alarm, newId, nowMs, { missed: missed + count + 1 });
  return { kind: 'skip', change, isDropped: isTooLate(lastMs) };
}

import { invalidRequest } from './error.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import { boolean, type Kind, number, refine, wrongAt } from './kind.ts';
import { maybe, object } from './shape.ts';

/** A durable agent as requested: its state is saved before a call is answered. */
export interface Durable {
  /** Shape of the state, a number of the user's code. */
  readonly schema: number;
  /** Time without use after which the agent sleeps. 0 or absent: it sleeps only on request. */
  readonly sleepMs?: number;
  /** Functions in addition to the handler. Absent: there are none. */
  readonly entries?: DurableEntries;
}

/** Functions of the code of a durable agent, each as `module.function`; absent: there is none. */
export interface DurableEntries {
  /** Gets the alarms instead of the handler. */
  readonly alarm?: string;
  /** Runs before the agent falls asleep. */
  readonly sleep?: string;
}

/** Default of `sleep_after_seconds`. */
const SLEEP_AFTER_SECONDS = 60;
const LONGEST_SLEEP_AFTER_SECONDS = 86_400;

const anything: Kind<unknown> = { describe: () => ({}), read: value => value };
const NO_EFFECT = 'Has no effect yet.';

/** Members that a later version implements. */
const NOT_YET = {
  pause_after_seconds: maybe(anything, NO_EFFECT),
  save: maybe(anything, NO_EFFECT),
  files: maybe(anything, NO_EFFECT),
  schema: maybe(anything, NO_EFFECT),
  code: maybe(anything, NO_EFFECT),
  busy: maybe(anything, NO_EFFECT),
  wake_on: maybe(anything, NO_EFFECT),
  max_awake_seconds: maybe(anything, NO_EFFECT),
};

const sleepAfter: Kind<number> = refine(
  number({ min: 0, max: LONGEST_SLEEP_AFTER_SECONDS }),
  (value, path, problem) => {
    if (value > 0 && value < 1) problem(path, `must be 0 or from 1 to ${LONGEST_SLEEP_AFTER_SECONDS}`);
  },
);

const whole = object({
  ...NOT_YET,
  sleep_after_seconds: maybe(sleepAfter, {
    default: SLEEP_AFTER_SECONDS,
    description:
      'It sleeps after this time without a call, a command or other access; 0: only on request. With `idle_seconds` the default is 0.',
  }),
});

/** `true`, `false`, or an object with more fields. */
export const durable: Kind<Durable | false> = {
  describe: options => ({ anyOf: [boolean.describe(options), whole.describe(options)] }),
  fields: whole.fields,
  read(value, path, problem) {
    if (value === false) return false;
    if (value === true) return { schema: 1 };
    if (isJsonObject(value)) {
      const seconds = whole.read(value, path, problem)?.sleep_after_seconds;
      return { schema: 1, ...(seconds !== undefined && { sleepMs: Math.ceil(seconds * 1000) }) };
    }
    return wrongAt(path, 'must be true, false or an object', problem);
  },
};

/**
 * Returns the member of a request with the idle time after which the agent sleeps. `idleMs`: the time after
 * which it is deleted or paused. Fails with `invalid_request` if both are set.
 */
export function withSleep(durable: Durable, idleMs: number | undefined): Durable {
  const { sleepMs } = durable;
  if (idleMs === undefined) return { ...durable, sleepMs: sleepMs ?? SLEEP_AFTER_SECONDS * 1000 };
  if (sleepMs !== undefined && sleepMs > 0)
    throw invalidRequest(
      'invalid request body: durable.sleep_after_seconds and idle_seconds exclude each other; leave out one of them',
    );
  return { ...durable, sleepMs: 0 };
}

/** Returns the entries that a request names; undefined: it names none. */
export function entriesOf({ alarm, sleep }: Required<DurableEntries>): DurableEntries | undefined {
  if (alarm === '' && sleep === '') return undefined;
  return { ...(alarm !== '' && { alarm }), ...(sleep !== '' && { sleep }) };
}

/** Returns warnings about the members of `durable` in the body of a create that have no effect yet. */
export function durableWarnings({ durable: sent }: JsonObject): readonly string[] {
  if (!isJsonObject(sent)) return [];
  return Object.keys(NOT_YET)
    .filter(name => (sent[name] ?? null) !== null)
    .map(name => `durable.${name} has no effect yet`);
}

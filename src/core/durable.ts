import { isJsonObject, type JsonObject } from './json.ts';
import { boolean, type Kind, wrongAt } from './kind.ts';
import { maybe, object } from './shape.ts';

/** A durable agent as requested: its state is saved before a call is answered. */
export interface Durable {
  /** Shape of the state, a number of the user's code. */
  readonly schema: number;
}

const anything: Kind<unknown> = { describe: () => ({}), read: value => value };
const NO_EFFECT = 'Has no effect yet.';

/** Members that a later version implements. */
const NOT_YET = {
  sleep_after_seconds: maybe(anything, NO_EFFECT),
  pause_after_seconds: maybe(anything, NO_EFFECT),
  save: maybe(anything, NO_EFFECT),
  files: maybe(anything, NO_EFFECT),
  schema: maybe(anything, NO_EFFECT),
  code: maybe(anything, NO_EFFECT),
  busy: maybe(anything, NO_EFFECT),
  wake_on: maybe(anything, NO_EFFECT),
  max_awake_seconds: maybe(anything, NO_EFFECT),
};

const whole = object(NOT_YET);

/** `true`, `false`, or an object with more fields. */
export const durable: Kind<Durable | false> = {
  describe: options => ({ anyOf: [boolean.describe(options), whole.describe(options)] }),
  fields: whole.fields,
  read(value, path, problem) {
    if (value === false) return false;
    if (value === true || isJsonObject(value)) return { schema: 1 };
    return wrongAt(path, 'must be true, false or an object', problem);
  },
};

/** Returns warnings about the members of `durable` in the body of a create that have no effect yet. */
export function durableWarnings({ durable: sent }: JsonObject): readonly string[] {
  if (!isJsonObject(sent)) return [];
  return Object.keys(NOT_YET)
    .filter(name => (sent[name] ?? null) !== null)
    .map(name => `durable.${name} has no effect yet`);
}

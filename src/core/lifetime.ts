import type { Labels, OnExpiry } from './instance.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { boolean, type Kind, number, oneOf, record, refine, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { maybe, object, optional, required, type ValueOf } from './shape.ts';

const { labels: bounds } = LIMITS;

const eachLabel = record(text({ maxChars: bounds.valueChars }), {
  check: name =>
    name === '' || [...name].length > bounds.nameChars
      ? `must have a name of 1 to ${bounds.nameChars} characters`
      : undefined,
  pattern: new RegExp(`^[^]{1,${bounds.nameChars}}$`),
});

/** Labels of an agent. */
const labels: Kind<Labels> = refine(
  eachLabel,
  (value, path, problem) => {
    if (Object.keys(value).length > bounds.count) problem(path, `must have at most ${bounds.count} labels`);
  },
  { maxProperties: bounds.count },
);

const seconds = { min: 1, max: LIMITS.lifetimeSeconds.max };

/** Fields of a create that say by what an agent is found and when it ends. */
export const LIFETIME_FIELDS = {
  labels: optional(labels, {}, 'Names and values; lists select agents by them.'),
  ttl_seconds: maybe(number(seconds), 'Time to live from the start; absent: until it is deleted.'),
  idle_seconds: maybe(number(seconds), 'It ends after this time without a call, a command or other access.'),
  on_expiry: optional(oneOf<OnExpiry>(['delete', 'pause']), 'delete', {
    default: 'delete',
    description: 'The action at the end of `ttl_seconds` or `idle_seconds`.',
  }),
};

export type LifetimeFields = ValueOf<typeof LIFETIME_FIELDS>;

/** The members of an `InstanceSpec` that these fields become. */
export interface Lifetime {
  readonly labels?: Labels;
  readonly ttlMs?: number;
  readonly idleMs?: number;
  readonly onExpiry?: OnExpiry;
}

/** Converts the fields. Members with their default are absent. */
export function lifetimeOf({ labels, ttl_seconds, idle_seconds, on_expiry }: LifetimeFields): Lifetime {
  return {
    ...(Object.keys(labels).length > 0 && { labels }),
    ...(ttl_seconds !== undefined && { ttlMs: Math.ceil(ttl_seconds * 1000) }),
    ...(idle_seconds !== undefined && { idleMs: Math.ceil(idle_seconds * 1000) }),
    ...(on_expiry === 'pause' && { onExpiry: on_expiry }),
  };
}

const TTL_FIELDS = {
  ttl_seconds: required(
    number({ min: 0, max: LIMITS.lifetimeSeconds.max }),
    'From now; for a paused agent from its resume. 0: it lives until it is deleted.',
  ),
  only_later: optional(boolean, false, 'Never moves the end to an earlier time.'),
};

/** The body that changes the time to live of an agent. */
export const AGENT_TTL = object<ValueOf<typeof TTL_FIELDS>>(TTL_FIELDS);

/** Reads the body. Fails with `invalid_request`. */
export function readTtl(body: JsonObject): { readonly ttlMs: number; readonly onlyLater: boolean } {
  const { ttl_seconds, only_later } = AGENT_TTL.read(body, '', failAtFirst) as ValueOf<typeof TTL_FIELDS>;
  return { ttlMs: Math.ceil(ttl_seconds * 1000), onlyLater: only_later };
}

import { agentName, environment } from './agent.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { boolean, integer, number } from './kind.ts';
import { LIMITS } from './limits.ts';
import type { Variables } from './secret.ts';
import { maybe, object, optional, type ValueOf } from './shape.ts';

const FORK_FIELDS = {
  name: maybe(agentName, 'With a `count` above 1, `-1`, `-2` … follow it. Absent: the service makes names up.'),
  namespace: maybe(agentName, 'Absent: that of the original.'),
  count: optional(integer({ min: 1, max: LIMITS.forks }), 1),
  env_vars: optional(environment, {}, 'In addition to the variables of the original.'),
  ttl_seconds: maybe(
    number({ min: 1, max: LIMITS.lifetimeSeconds.max }),
    'Time to live from the start; absent: that with which the original was created.',
  ),
  files_only: optional(boolean, false, 'The files suffice, although the original runs processes.'),
};

/** The body of a fork of an agent. */
export const AGENT_FORK = object<ValueOf<typeof FORK_FIELDS>>(FORK_FIELDS);

export interface AgentFork {
  /** Returns the name of the fork with this index, from 0 on; undefined: the request names none. */
  readonly nameOf: (index: number) => string | undefined;
  /** Absent: the namespace of the original. */
  readonly namespace?: string;
  readonly count: number;
  readonly env: Variables;
  /** Absent: the time to live of the original. */
  readonly ttlMs?: number;
  readonly isFilesOnly: boolean;
}

/** Reads the body. Fails with `invalid_request`. */
export function readFork(body: JsonObject): AgentFork {
  const fork = AGENT_FORK.read(body, '', failAtFirst) as ValueOf<typeof FORK_FIELDS>;
  const { name, namespace, count, env_vars, ttl_seconds, files_only } = fork;
  return {
    nameOf: index => (name === undefined || count === 1 ? name : `${name}-${index + 1}`),
    ...(namespace !== undefined && { namespace }),
    count,
    env: env_vars,
    ...(ttl_seconds !== undefined && { ttlMs: Math.ceil(ttl_seconds * 1000) }),
    isFilesOnly: files_only,
  };
}

import { integer, type Kind, number, oneOf } from './kind.ts';
import { LIMITS } from './limits.ts';
import { maybe, object, optional, required, type ValueOf } from './shape.ts';

/** The reaction when an agent's sandbox exits on its own. */
export interface RestartPolicy {
  readonly policy: 'never' | 'on-failure' | 'always';
  /** Consecutive restarts; null: no bound. */
  readonly maxRestarts: number | null;
  /** Delay before the first consecutive restart; each further one doubles the delay. */
  readonly backoffMs: number;
}

const word = oneOf(['never', 'on-failure', 'always']);

const FIELDS = {
  policy: required(word, '`on-failure`: unless it ended with exit code 0. `always`: however it ended.'),
  max_restarts: maybe(
    integer({ min: 1, max: LIMITS.restartsInRow.max }),
    `In a row; absent: ${LIMITS.restartsInRow.default} for \`on-failure\`, no bound for \`always\`.`,
  ),
  backoff_seconds: optional(
    number({ min: 0.1, max: 3600 }),
    1,
    `Before the first restart in a row; doubled for each further one, up to ${LIMITS.longestRestartPauseMs / 1000} s.`,
  ),
};

const whole = object<ValueOf<typeof FIELDS>>(FIELDS);

/** A word, or an object with more fields. */
export const restartPolicy: Kind<RestartPolicy> = {
  describe: options => ({ anyOf: [word.describe(options), whole.describe(options)] }),
  fields: whole.fields,
  read(value, path, problem) {
    const read = typeof value === 'string' ? word.read(value, path, problem) : whole.read(value, path, problem);
    if (read === undefined) return undefined;
    if (typeof read === 'string') return policyOf({ policy: read, max_restarts: undefined, backoff_seconds: 1 });
    return policyOf(read);
  },
};

function policyOf({ policy, max_restarts, backoff_seconds }: ValueOf<typeof FIELDS>): RestartPolicy {
  const usual = policy === 'on-failure' ? LIMITS.restartsInRow.default : null;
  return { policy, maxRestarts: max_restarts ?? usual, backoffMs: Math.round(backoff_seconds * 1000) };
}

/** Returns the policy in the form of a record. */
export function shownPolicy({ policy, maxRestarts, backoffMs }: RestartPolicy): Record<string, unknown> {
  return policy === 'never' ? { policy } : { policy, max_restarts: maxRestarts, backoff_seconds: backoffMs / 1000 };
}

/** The end of a run; `exitCode` null: the sandbox was killed, or its exit code is unknown. */
export interface End {
  readonly exitCode: number | null;
  /** Duration of the run. */
  readonly ranMs: number;
  /** Restarts by the policy since the last run of `LIMITS.restartResetMs`, or since a manual restart. */
  readonly restartsInRow: number;
}

/**
 * Returns the pause and the number of the next consecutive restart. `enough`: the policy allows no more
 * restarts. Null: the policy does not restart after this end.
 */
export function nextRestart(
  policy: RestartPolicy | undefined,
  { exitCode, ranMs, restartsInRow }: End,
): { readonly inRow: number; readonly pauseMs: number } | 'enough' | null {
  if (policy === undefined || policy.policy === 'never') return null;
  if (policy.policy === 'on-failure' && exitCode === 0) return null;
  const before = ranMs >= LIMITS.restartResetMs ? 0 : restartsInRow;
  if (policy.maxRestarts !== null && before >= policy.maxRestarts) return 'enough';
  return {
    inRow: before + 1,
    pauseMs: Math.min(
      LIMITS.longestRestartPauseMs,
      Math.max(policy.backoffMs * 2 ** Math.min(before, 30), policy.backoffMs),
    ),
  };
}

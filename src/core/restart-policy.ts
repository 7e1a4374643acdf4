import { integer, type Kind, number, oneOf } from './kind.ts';
import { LIMITS } from './limits.ts';
import { maybe, object, optional, required, type ValueOf } from './shape.ts';

/** What happens to an agent whose sandbox ended by itself. */
export interface RestartPolicy {
  readonly policy: 'never' | 'on-failure' | 'always';
  /** How often in a row; null: as often as it takes. */
  readonly maxRestarts: number | null;
  /** Before the first restart in a row; doubled for each further one. */
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

/** A word, or an object with more. */
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

/** As a record shows it. */
export function shownPolicy({ policy, maxRestarts, backoffMs }: RestartPolicy): Record<string, unknown> {
  return policy === 'never' ? { policy } : { policy, max_restarts: maxRestarts, backoff_seconds: backoffMs / 1000 };
}

/** How an end looked; `exitCode` null: it was killed, or nobody knows. */
export interface End {
  readonly exitCode: number | null;
  /** How long it had run. */
  readonly ranMs: number;
  /** Restarts by the policy since it last ran for `LIMITS.restartResetMs`, or was restarted by somebody. */
  readonly restartsInRow: number;
}

/** When it starts again, as the how-manieth restart in a row; `enough`: it has been restarted as often as it may. null: it stays as it is. */
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

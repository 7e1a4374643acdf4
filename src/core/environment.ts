import { type Kind, record, refine } from './kind.ts';
import { LIMITS } from './limits.ts';
import { MAX_QUOTED_CHARS } from './problem.ts';

/** Environment variables by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

const ENVIRONMENT_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Returns the problem of a caller's variable name, or undefined. */
export function environmentNameProblem(name: string): string | undefined {
  if (!ENVIRONMENT_NAME.test(name)) return 'must have a name like [A-Za-z_][A-Za-z0-9_]*';
  if (name.startsWith('ROOKERY_')) return 'cannot be set: names that begin with ROOKERY_ belong to the platform';
  return undefined;
}

interface VariableNames {
  readonly check?: (name: string) => string | undefined;
  readonly pattern: RegExp;
}

/** A map of variables. Linux does not start a program with a variable longer than `LIMITS.variableBytes`. */
export function variables<T>(value: Kind<T>, names: VariableNames = ENVIRONMENT_NAMES): Kind<Record<string, T>> {
  return refine(record(value, names), (given, path, problem) => {
    for (const [name, each] of Object.entries(given)) {
      // Values that are not texts refer to a secret.
      const valueBytes = typeof each === 'string' ? Buffer.byteLength(each) : LIMITS.secretValueBytes;
      if (Buffer.byteLength(name) + 1 + valueBytes <= LIMITS.variableBytes) continue;
      const shown = problem.isStepwise ? name : name.slice(0, MAX_QUOTED_CHARS);
      problem(`${path}.${shown}`, `must have at most ${LIMITS.variableBytes} bytes, its name and "=" included`);
    }
  });
}

/** Rules for the names of environment variables in a map. */
export const ENVIRONMENT_NAMES = {
  check: environmentNameProblem,
  pattern: /^(?!ROOKERY_)[A-Za-z_][A-Za-z0-9_]*$/,
} as const;

/** Replaces an environment's value for callers that may not see it. */
export const MASK = '***';

/** Fields whose values are environments, anywhere in an answer. Clients of AWS get `Environment`. */
export const ENVIRONMENTS: ReadonlySet<string> = new Set(['env_vars', 'environment', 'Environment']);

/** Variables by their names. */
export type Environment = Readonly<Record<string, string | undefined>>;

const ENVIRONMENT_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The problem of a name that a caller gives an environment variable; undefined when it has none. */
export function environmentNameProblem(name: string): string | undefined {
  if (!ENVIRONMENT_NAME.test(name)) return 'must have a name like [A-Za-z_][A-Za-z0-9_]*';
  if (name.startsWith('ROOKERY_')) return 'cannot be set: names that begin with ROOKERY_ belong to the platform';
  return undefined;
}

/** Names of environment variables, for a map of them. */
export const ENVIRONMENT_NAMES = {
  check: environmentNameProblem,
  pattern: /^(?!ROOKERY_)[A-Za-z_][A-Za-z0-9_]*$/,
} as const;

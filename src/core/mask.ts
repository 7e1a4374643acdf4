/** Replaces an environment's value for callers that may not see it. */
export const MASK = '***';

/** Fields whose values are environments, anywhere in an answer. */
export const ENVIRONMENTS: ReadonlySet<string> = new Set(['env_vars', 'environment']);

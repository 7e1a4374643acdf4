/** Stands in the place of an environment's value, for who may not see it. */
export const MASK = '***';

/** Fields whose values are environments, wherever they stand in an answer. */
export const ENVIRONMENTS: ReadonlySet<string> = new Set(['env_vars', 'environment']);

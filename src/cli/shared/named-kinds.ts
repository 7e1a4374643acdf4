/** The kinds of resources whose names a completion script offers. */
export const NAMED_KINDS = ['agent', 'function', 'job', 'schedule', 'pool', 'secret', 'context'] as const;
export type NamedKind = (typeof NAMED_KINDS)[number];

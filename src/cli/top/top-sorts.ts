/** The columns by which `rookery top` can sort. */
export const SORTS = ['cpu', 'memory', 'calls', 'errors', 'name'] as const;
export type Sort = (typeof SORTS)[number];

/** The programs that `rookery init` can write. `init-templates.ts` has their files; only `init` loads it. */
export const TEMPLATE_NAMES = ['python', 'typescript', 'go', 'http', 'mcp'] as const;
export type TemplateName = (typeof TEMPLATE_NAMES)[number];

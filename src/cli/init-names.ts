/** The programs that `rookery init` can write; what is in them stands in `init-templates.ts`, which only `init` loads. */
export const TEMPLATE_NAMES = ['python', 'typescript', 'go', 'http', 'mcp'] as const;
export type TemplateName = (typeof TEMPLATE_NAMES)[number];

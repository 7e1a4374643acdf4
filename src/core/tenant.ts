/** The form of a tenant's name, without anchors, for schemas and longer patterns. */
export const TENANT_PATTERN = '[A-Za-z0-9][A-Za-z0-9._-]{0,63}';
/** The form of a tenant's name in words, as the end of a sentence: "expected …". */
export const TENANT_RULE = '1 to 64 letters, digits, ".", "_" or "-", beginning with a letter or digit';

/** The tenant of requests that name none. */
export const DEFAULT_TENANT = 'default';

const TENANT = new RegExp(`^${TENANT_PATTERN}$`);

export function isTenant(text: string): boolean {
  return TENANT.test(text);
}

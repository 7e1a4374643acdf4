/** The form of a tenant's name, for schemas and for longer patterns; without anchors. */
export const TENANT_PATTERN = '[A-Za-z0-9][A-Za-z0-9._-]{0,63}';
/** The same in words, as the end of a sentence: "expected …". */
export const TENANT_RULE = '1 to 64 letters, digits, ".", "_" or "-", beginning with a letter or digit';

/** Who says nothing else. */
export const DEFAULT_TENANT = 'default';

const TENANT = new RegExp(`^${TENANT_PATTERN}$`);

export function isTenant(text: string): boolean {
  return TENANT.test(text);
}

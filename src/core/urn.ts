import { TENANT_PATTERN } from './tenant.ts';

/**
 * Names, versions and URNs of functions: `sn:cn:<business>:<tenant>:function:0@<service>@<name>:<version>`.
 * Without its version it names the function (`functionUrn`), with it one version (`functionVersionUrn`).
 */
export interface FunctionUrn {
  readonly business: string;
  readonly tenant: string;
  /** `0@<service>@<name>` */
  readonly name: string;
  /** Normalized: `$latest` however it was spelled. null: the URN has none. */
  readonly version: string | null;
}

/** The editable latest revision. */
export const LATEST = '$latest';

export const FUNCTION_NAME_FORMAT =
  '0@{service}@{funcName}, service: 1 to 16 letters and digits, funcName: 1 to 127 lowercase letters, digits and "-"';
export const VERSION_FORMAT =
  '1 to 42 letters, digits, ".", "_" and "-", the first and the last a letter or a digit, and not "latest"';

const NAME = '0@[A-Za-z0-9]{1,16}@[a-z0-9-]{1,127}';
const BUSINESS = '[A-Za-z0-9][A-Za-z0-9_-]{0,63}';
const VERSION_NUMBER = '[A-Za-z0-9]([A-Za-z0-9._-]{0,40}[A-Za-z0-9])?';
export const FUNCTION_NAME_PATTERN = `^${NAME}$`;
/** A name, or a URN with its version or without; for schemas. */
export const NAME_OR_URN_PATTERN = `^(${NAME}|sn:cn:${BUSINESS}:${TENANT_PATTERN}:function:${NAME}(:(\\$latest|${VERSION_NUMBER}))?)$`;
const FUNCTION_NAME = new RegExp(FUNCTION_NAME_PATTERN);
const VERSION = new RegExp(`^${VERSION_NUMBER}$`);
const URN = new RegExp(`^sn:cn:(${BUSINESS}):(${TENANT_PATTERN}):function:(${NAME})(?::([^:]+))?$`);

export function isFunctionName(text: string): boolean {
  return FUNCTION_NAME.test(text);
}

/** True for what a published version may be called. */
export function isVersionNumber(text: string): boolean {
  return VERSION.test(text) && text !== 'latest';
}

/** `latest` is another spelling of `$latest` wherever a version is read. */
export function normalizeVersion(text: string): string {
  return text === 'latest' ? LATEST : text;
}

/** null when the text is no URN of a function. */
export function parseUrn(text: string): FunctionUrn | null {
  const match = URN.exec(text);
  if (!match) return null;
  const [, business = '', tenant = '', name = '', sent] = match;
  const version = sent === undefined ? null : normalizeVersion(sent);
  if (version !== null && version !== LATEST && !isVersionNumber(version)) return null;
  return { business, tenant, name, version };
}

export function formatUrn({ business, tenant, name, version }: FunctionUrn): string {
  const functionUrn = `sn:cn:${business}:${tenant}:function:${name}`;
  return version === null ? functionUrn : `${functionUrn}:${version}`;
}

/** The URN of the function that a URN names, with a version or without; a text that is none as it is. */
export function functionUrnOf(urn: string): string {
  const parsed = parseUrn(urn);
  return parsed ? formatUrn({ ...parsed, version: null }) : urn;
}

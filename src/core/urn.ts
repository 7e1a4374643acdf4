import { TENANT_PATTERN } from './tenant.ts';

/**
 * Names, versions and URNs of functions: `sn:cn:<business>:<tenant>:function:0@<service>@<name>:<version>`. A
 * URN without a version names the function (`functionUrn`), with a version one version
 * (`functionVersionUrn`).
 */
export interface FunctionUrn {
  readonly business: string;
  readonly tenant: string;
  /** `0@<service>@<name>` */
  readonly name: string;
  /** Normalized: every spelling of the latest version is `$latest`. Null: the URN has no version. */
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
/** A name, or a URN with or without a version; for schemas. */
export const NAME_OR_URN_PATTERN = `^(${NAME}|sn:cn:${BUSINESS}:${TENANT_PATTERN}:function:${NAME}(:(\\$latest|${VERSION_NUMBER}))?)$`;
/** The same, a name without `0@`, or nothing; for schemas of queries. */
export const QUERIED_NAME_PATTERN = `^$|${NAME_OR_URN_PATTERN}|^${NAME.replace('0@', '')}$`;
const FUNCTION_NAME = new RegExp(FUNCTION_NAME_PATTERN);
const VERSION = new RegExp(`^${VERSION_NUMBER}$`);
const URN = new RegExp(`^sn:cn:(${BUSINESS}):(${TENANT_PATTERN}):function:(${NAME})(?::([^:]+))?$`);

export function isFunctionName(text: string): boolean {
  return FUNCTION_NAME.test(text);
}

/** Returns true if a published version may have this name. */
export function isVersionNumber(text: string): boolean {
  return VERSION.test(text) && text !== 'latest';
}

/** Replaces `latest` by `$latest`, for every place that reads a version. */
export function normalizeVersion(text: string): string {
  return text === 'latest' ? LATEST : text;
}

/** Parses a URN. Returns null when the text is not a URN of a function. */
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

/** Removes the version from a URN. Returns a text that is not a URN unchanged. */
export function functionUrnOf(urn: string): string {
  const parsed = parseUrn(urn);
  return parsed ? formatUrn({ ...parsed, version: null }) : urn;
}

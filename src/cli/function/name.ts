import { formatUrn, isFunctionName, LATEST, normalizeVersion, parseUrn } from '../../core/urn.ts';
import { usageError } from '../shared/exit.ts';

export interface NamedVersion {
  /** The whole name, or the URN without its version. The service checks the owner of the function. */
  readonly name: string;
  /** `$latest` when none was given. */
  readonly version: string;
}

/** The service of a function with a short name. */
const DEFAULT_SERVICE = 'default';

/** Returns the whole name: `hello` becomes `0@default@hello`, `demo@hello` becomes `0@demo@hello`. */
export function expandName(given: string): string {
  const parts = given.split(/[@/]/);
  const name =
    parts.length === 1 ? `0@${DEFAULT_SERVICE}@${given}` : parts.length === 2 ? `0@${parts.join('@')}` : given;
  if (isFunctionName(name)) return name;
  throw usageError(
    `${JSON.stringify(given)} is not the name of a function: it is hello, demo@hello, demo/hello or 0@demo@hello, the service (demo) 1 to 16 letters and digits, the rest lowercase letters, digits and "-".`,
  );
}

/** Parses a function with one of its versions: `hello`, `hello:v1`, `0@demo@hello:v1`, or a URN. */
export function parseNamedVersion(given: string): NamedVersion {
  if (given.startsWith('sn:')) return parseUrnVersion(given);
  const colon = given.indexOf(':');
  if (colon === -1) return { name: expandName(given), version: LATEST };
  const version = normalizeVersion(given.slice(colon + 1));
  if (version === '') throw usageError(`${JSON.stringify(given)} names no version behind its ":".`);
  return { name: expandName(given.slice(0, colon)), version };
}

function parseUrnVersion(given: string): NamedVersion {
  const urn = parseUrn(given);
  if (urn !== null) return { name: formatUrn({ ...urn, version: null }), version: urn.version ?? LATEST };
  throw usageError(
    `${JSON.stringify(given)} is not the URN of a function: it is sn:cn:<business>:<tenant>:function:<name>, with or without :<version>.`,
  );
}

/** Parses a function without a version and returns its `NamedVersion.name`. Accepts the latest version. */
export function parseFunction(given: string): string {
  const { name, version } = parseNamedVersion(given);
  if (version === LATEST) return name;
  throw usageError(`${JSON.stringify(given)} names a version: give the function without it.`);
}

/** Returns the path of a function in the meta_service. */
export function functionUrl(name: string): string {
  return `/functions/${encodeURIComponent(name)}`;
}

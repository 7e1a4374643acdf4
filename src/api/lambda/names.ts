import { isVersionNumber, LATEST } from '../../core/urn.ts';

/** A function as a client of AWS Lambda names it. */
export interface LambdaFunction {
  /** The registered name, `0@<service>@<function>`. */
  readonly name: string;
  /** `$latest`, or the number of a published version. null: the name has none. */
  readonly version: string | null;
}

const DEFAULT_SERVICE = 'default';
/** Word for the latest revision. */
export const LAMBDA_LATEST = '$LATEST';
const PART = '[A-Za-z0-9_@-]{1,160}';
const NAMED = new RegExp(
  `^(?:(?:arn:[a-z0-9-]+:lambda:[a-z0-9-]*:)?(?:[A-Za-z0-9_-]*:)?function:)?(${PART})(?::([^:]+))?$`,
);

/**
 * Reads a function name of Lambda: `<function>`, `<service>@<function>`, `0@<service>@<function>`, or one of
 * them behind `function:`, `<account>:function:` or `arn:aws:lambda:<region>:<account>:function:`; each may
 * end with `:<version>`. Regions and accounts have no meaning here. Returns null for any other text.
 */
export function readLambdaName(sent: string): LambdaFunction | null {
  const match = NAMED.exec(sent);
  if (match === null) return null;
  const [, named = '', qualifier] = match;
  const parts = named.split('@');
  const name =
    parts.length === 1
      ? `0@${DEFAULT_SERVICE}@${named}`
      : parts.length === 2
        ? `0@${named}`
        : parts.length === 3 && parts[0] === '0'
          ? named
          : null;
  if (name === null) return null;
  const version = qualifier === undefined ? null : readQualifier(qualifier);
  return qualifier !== undefined && version === null ? null : { name, version };
}

/** Reads `$LATEST` or a version. Returns null for any other text. */
export function readQualifier(sent: string): string | null {
  if (sent === LAMBDA_LATEST || sent === LATEST || sent === 'latest') return LATEST;
  return isVersionNumber(sent) ? sent : null;
}

/** Returns a version as Lambda writes it. */
export function lambdaVersion(version: string): string {
  return version === LATEST ? LAMBDA_LATEST : version;
}

/** Returns the shortest name that `readLambdaName` reads as the function. */
export function shortLambdaName(name: string): string {
  const [, service = '', short = ''] = name.split('@');
  return service === DEFAULT_SERVICE ? short : `${service}@${short}`;
}

/**
 * Returns the ARN of a function. The region and the account are placeholders, which requests may leave out.
 */
export function lambdaArn(name: string): string {
  return `arn:aws:lambda:local:000000000000:function:${shortLambdaName(name)}`;
}

import type { IncomingMessage } from 'node:http';
import { Away, invalidRequest } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { isWebSocketUpgrade, type TokenVerifier, tokenOf } from '../../http/access/credentials.ts';
import { decodedLoosely, nameOf, queryOf, valuesOf } from '../../lib/query-pairs.ts';
import type { HeaderChanges } from './links.ts';

/** Headers of a single connection (RFC 9110 §7.6.1), which each side sets on its own. */
export const OF_CONNECTION: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'upgrade',
]);
/**
 * Headers that determine the end of a body.
 * Each side writes them once, from the values that Node has parsed, even if `Connection` names them.
 */
export const OF_FRAMING: ReadonlySet<string> = new Set(['content-length', 'trailer', 'transfer-encoding']);
/** Headers for the platform, not for the program in a sandbox. Node has already answered `expect`. */
const OF_PLATFORM = new Set(['expect', 'tenantid', 'x-auth', 'x-tenant-id', 'x-trace-id']);
const METHODS_WITHOUT_BODY = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

export interface PassedHead {
  readonly traceId: string;
  readonly tokens: readonly string[];
  readonly isUpgrade: boolean;
  readonly headerChanges: HeaderChanges;
}

/**
 * Returns the platform's tokens in a request: the admitting one and others, because a client may send
 * several.
 * Headers and parameters that contain one of them do not reach a sandbox. Fails as `carriedTokens` does.
 */
export async function platformTokens(request: IncomingMessage, auth: TokenVerifier | null): Promise<readonly string[]> {
  if (auth === null) return [];
  const counted = tokenOf(request);
  const others = await Promise.all(
    carriedTokens(request).map(async token => (token === counted || (await isOurs(token, auth)) ? token : undefined)),
  );
  return [...new Set([counted, ...others])].filter(token => token !== undefined);
}

/**
 * Returns the possible tokens of a request outside of cookies, without repetition.
 * The order is the one in which the first token counts.
 * Fails with `invalid_request` if there are too many, because each may have to be verified.
 */
export function carriedTokens(request: IncomingMessage): string[] {
  const found: string[] = [];
  const xAuth = request.headers['x-auth'];
  if (typeof xAuth === 'string') found.push(xAuth);
  for (let at = 0; at < request.rawHeaders.length; at += 2) {
    if (request.rawHeaders[at]?.toLowerCase() !== 'authorization') continue;
    const bearer = /^\s*bearer\s+(\S+)/i.exec(request.rawHeaders[at + 1] as string)?.[1];
    if (bearer !== undefined) found.push(bearer);
  }
  const query = isWebSocketUpgrade(request) ? queryOf(request.url ?? '') : undefined;
  if (query !== undefined) found.push(...valuesOf(query, 'token'));
  const carried = [...new Set(found.filter(token => token !== ''))];
  if (carried.length <= LIMITS.passTokens) return carried;
  throw invalidRequest(
    `the request carries ${carried.length} tokens in X-Auth, Authorization and the query, at most ${LIMITS.passTokens} are allowed`,
  );
}

/** Returns true for a valid token of the platform. Fails with `Away` if no token can be verified now. */
export async function isOurs(token: string, auth: TokenVerifier): Promise<boolean> {
  if (auth.known(token) !== undefined) return true;
  return await auth.verify(token).then(
    () => true,
    error => {
      // The token may be the platform's, which must not reach a sandbox.
      if (error instanceof Away) throw error;
      return false;
    },
  );
}

/**
 * Returns the headers for the sandbox, as alternating names and values.
 * Omits headers of the platform and of the client's connection. All others are unchanged.
 */
export function headersForSandbox(request: IncomingMessage, head: PassedHead): string[] {
  const { rawHeaders, headers, method = 'GET' } = request;
  const { traceId, isUpgrade } = head;
  const named = namedByConnection(headers.connection);
  const sent: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    const lower = name.toLowerCase();
    if (named.has(lower) || OF_FRAMING.has(lower)) continue;
    const value = valueForSandbox(lower, rawHeaders[at + 1] as string, head);
    if (value !== undefined) sent.push(name, value);
  }
  sent.push('X-Trace-Id', traceId);
  if (/\btrailers\b/i.test(String(headers.te))) sent.push('TE', 'trailers');
  const { 'transfer-encoding': encoding, 'content-length': length, trailer } = headers;
  if (isUpgrade) {
    // Node reads no body after an upgrade head. Its bytes would become the first bytes of the other protocol.
    if (encoding !== undefined || (length !== undefined && length !== '0')) {
      throw invalidRequest('a request that asks for an upgrade must not have a body');
    }
    sent.push('Connection', 'Upgrade', 'Upgrade', headers.upgrade ?? '');
    return sent;
  }
  if (encoding !== undefined) {
    sent.push('Transfer-Encoding', encoding);
    if (trailer !== undefined) sent.push('Trailer', trailer);
  } else if (length !== undefined) sent.push('Content-Length', length);
  else if (!METHODS_WITHOUT_BODY.has(method)) sent.push('Content-Length', '0');
  sent.push('Connection', 'close');
  return sent;
}

/** Returns the trailers of a request for the sandbox, as pairs. */
export function trailersForSandbox(
  rawTrailers: readonly string[],
  head: Pick<PassedHead, 'tokens' | 'headerChanges'>,
): [string, string][] {
  const sent: [string, string][] = [];
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string;
    const lower = name.toLowerCase();
    const value = OF_FRAMING.has(lower) ? undefined : valueForSandbox(lower, rawTrailers[at + 1] as string, head);
    if (value !== undefined) sent.push([name, value]);
  }
  return sent;
}

/** Returns the parameters of a query unchanged, without those in `own` and those that contain a token. */
export function pairsForSandbox(query: string, own: ReadonlySet<string>, tokens: readonly string[]): string[] {
  return query.split('&').filter(pair => !own.has(nameOf(pair)) && !hasToken(decodedLoosely(pair), tokens));
}

/** Returns the names in a `Connection` header. These headers also belong to a single connection. */
export function namedByConnection(connection: string | undefined): ReadonlySet<string> {
  return tokens(connection);
}

/** Returns the members of a list in a header, in lower case. */
export function tokens(list: string | undefined): ReadonlySet<string> {
  return new Set(
    (list ?? '')
      .toLowerCase()
      .split(/[ \t]*,[ \t]*/)
      .filter(each => each !== ''),
  );
}

/** Returns the value of a header for the sandbox; undefined: the header is omitted. */
function valueForSandbox(
  name: string,
  value: string,
  { tokens, headerChanges }: Pick<PassedHead, 'tokens' | 'headerChanges'>,
): string | undefined {
  if (OF_CONNECTION.has(name) || OF_PLATFORM.has(name)) return undefined;
  if (name === 'cookie') {
    const rest = headerChanges
      .cookies(value)
      .split('; ')
      .filter(pair => !hasToken(pair, tokens) && !hasToken(decodedLoosely(pair), tokens))
      .join('; ');
    return rest === '' ? undefined : rest;
  }
  return hasToken(value, tokens) || hasToken(decodedLoosely(value), tokens) ? undefined : value;
}

function hasToken(text: string, tokens: readonly string[]): boolean {
  return tokens.some(token => text.includes(token));
}

/** Headers that report the origin of a request to the sandbox server. Only the service may set them. */
const TOLD = new Set([
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-forwarded-proto',
  'x-real-ip',
]);

/**
 * Writes the origin of a request into its headers, for the server in the sandbox.
 * For a forwarded request, the first replica has done this.
 * The last address of `X-Forwarded-For` is the client's connection. The addresses before it are the client's
 * claims.
 */
export function tellOrigin(request: IncomingMessage, scheme: 'http' | 'https', prefix: string | null): void {
  const { rawHeaders, headers, socket } = request;
  const before = headers['x-forwarded-for'];
  const address = socket.remoteAddress?.replace(/^::ffff:/, '') ?? 'unknown';
  for (let at = rawHeaders.length - 2; at >= 0; at -= 2) {
    if (TOLD.has((rawHeaders[at] as string).toLowerCase())) rawHeaders.splice(at, 2);
  }
  rawHeaders.push('X-Forwarded-For', before === undefined ? address : `${String(before)}, ${address}`);
  rawHeaders.push('X-Forwarded-Host', headers.host ?? '', 'X-Forwarded-Proto', scheme);
  if (prefix !== null) rawHeaders.push('X-Forwarded-Prefix', prefix);
}

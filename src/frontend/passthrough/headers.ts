import type { IncomingMessage } from 'node:http';
import { invalidRequest } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { isWebSocketUpgrade, type TokenVerifier, tokenOf } from '../../http/credentials.ts';
import { decodedLoosely, nameOf, queryOf, valuesOf } from '../../lib/query-pairs.ts';
import type { Way } from './way.ts';

/** Headers of one connection only (RFC 9110 §7.6.1): each side has its own. */
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
/** Where a body ends. Each side says it anew, of what node has read: whatever a `Connection` names, it is there once. */
export const OF_FRAMING: ReadonlySet<string> = new Set(['content-length', 'trailer', 'transfer-encoding']);
/** Headers for the platform, not for the program in a sandbox. `expect` has been met by then. */
const OF_PLATFORM = new Set(['expect', 'tenantid', 'x-auth', 'x-tenant-id', 'x-trace-id']);
const METHODS_WITHOUT_BODY = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

export interface PassedHead {
  readonly traceId: string;
  readonly tokens: readonly string[];
  readonly isUpgrade: boolean;
  readonly way: Way;
}

/**
 * The tokens of the platform that a request carries: the one that let it in, and others beside it (a caller may have several).
 * Whatever has one of them in it does not reach a sandbox. Fails as `carriedTokens` does.
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
 * What stands where callers put a token of the platform beside cookies, each once, in the order in which the first one counts. Fails with
 * `invalid_request` when there are too many: each may have to be verified.
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

/** Whether it is a token that holds. */
export async function isOurs(token: string, auth: TokenVerifier): Promise<boolean> {
  if (auth.known(token) !== undefined) return true;
  return await auth.verify(token).then(
    () => true,
    () => false,
  );
}

/** Names and values in turn, as they were sent but for what belongs to the platform or to the caller's connection. */
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
    // Node reads no body there: its bytes would become the first ones of the other protocol.
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

/** The trailers of a request that may reach the sandbox, as pairs. */
export function trailersForSandbox(
  rawTrailers: readonly string[],
  head: Pick<PassedHead, 'tokens' | 'way'>,
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

/** The parameters of a query, as they were sent, but for those of these names and those with a token in them. */
export function pairsForSandbox(query: string, own: ReadonlySet<string>, tokens: readonly string[]): string[] {
  return query.split('&').filter(pair => !own.has(nameOf(pair)) && !hasToken(decodedLoosely(pair), tokens));
}

/** The names in a `Connection` header: of this connection only, too. */
export function namedByConnection(connection: string | undefined): ReadonlySet<string> {
  return tokens(connection);
}

/** The members of a list in a header, lower-case. */
export function tokens(list: string | undefined): ReadonlySet<string> {
  return new Set(
    (list ?? '')
      .toLowerCase()
      .split(/[ \t]*,[ \t]*/)
      .filter(each => each !== ''),
  );
}

/** `undefined`: it stays here. */
function valueForSandbox(
  name: string,
  value: string,
  { tokens, way }: Pick<PassedHead, 'tokens' | 'way'>,
): string | undefined {
  if (OF_CONNECTION.has(name) || OF_PLATFORM.has(name)) return undefined;
  if (name === 'cookie') {
    const rest = way
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

import type { IncomingMessage } from 'node:http';
import { tokenOf } from '../http/credentials.ts';

/** Headers of one connection only (RFC 9110 §7.6.1): each side has its own. */
const OF_CONNECTION = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);
/** What callers say to the platform, not to what runs in a sandbox. `expect` has been met by then. */
const OF_PLATFORM = new Set(['expect', 'tenantid', 'x-auth', 'x-tenant-id', 'x-trace-id']);
/** What would hold for the whole origin, which is the service's. */
const OF_ORIGIN = new Set(['alt-svc', 'clear-site-data', 'service-worker-allowed', 'strict-transport-security']);
/** Parameters of the platform; everything else of a query belongs to the sandbox. */
const OWN_PARAMETERS = new Set(['instance', 'port', 'token']);
const METHODS_WITHOUT_BODY = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/**
 * What a page from a sandbox may do in a browser: not what pages of the service may. It gets an origin of its own, so that its scripts
 * cannot ask the API in the name of whoever looks at it.
 */
const SANDBOXED = 'sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads';

export interface PassedHead {
  readonly traceId: string;
  /** Callers have tokens of the platform. */
  readonly hasAuth: boolean;
  readonly isUpgrade: boolean;
}

/** Names and values in turn, as they were sent but for what belongs to the platform or to the caller's connection. */
export function headersForSandbox(request: IncomingMessage, { traceId, hasAuth, isUpgrade }: PassedHead): string[] {
  const { rawHeaders, headers, method = 'GET' } = request;
  const named = namedByConnection(headers.connection);
  const bearer = hasAuth ? tokenOf(request) : undefined;
  const sent: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    const value = rawHeaders[at + 1] as string;
    const lower = name.toLowerCase();
    if (OF_CONNECTION.has(lower) || OF_PLATFORM.has(lower) || named.has(lower)) continue;
    if (lower === 'authorization' && bearer !== undefined && value.trim().endsWith(bearer)) continue;
    if (lower !== 'cookie') sent.push(name, value);
    else if (withoutToken(value) !== '') sent.push(name, withoutToken(value));
  }
  sent.push('X-Trace-Id', traceId);
  if (/\btrailers\b/i.test(String(headers.te))) sent.push('TE', 'trailers');
  const encoding = headers['transfer-encoding'];
  if (encoding !== undefined) sent.push('Transfer-Encoding', encoding);
  else if (headers['content-length'] === undefined && !METHODS_WITHOUT_BODY.has(method))
    sent.push('Content-Length', '0');
  if (isUpgrade) sent.push('Connection', 'Upgrade', 'Upgrade', headers.upgrade ?? '');
  else sent.push('Connection', 'close');
  return sent;
}

/** The headers of an answer that goes to the caller, names and values in turn. */
export function headersForCaller(answer: IncomingMessage, traceId: string): string[] {
  const { rawHeaders, headers } = answer;
  const named = namedByConnection(headers.connection);
  const sent: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    const value = rawHeaders[at + 1] as string;
    const lower = name.toLowerCase();
    if (OF_CONNECTION.has(lower) || OF_ORIGIN.has(lower) || named.has(lower) || lower === 'x-trace-id') continue;
    // Nobody but the service says who its callers are, not in the value of a cookie without a name either.
    if (lower === 'set-cookie' && /iam_token/i.test(value.split(';', 1)[0] as string)) continue;
    sent.push(name, value);
  }
  sent.push('X-Trace-Id', traceId, 'Content-Security-Policy', SANDBOXED);
  return sent;
}

/** The query without what belongs to the platform, with its question mark; `''` when nothing is left. */
export function queryForSandbox(query: string | undefined): string {
  if (query === undefined) return '';
  const kept = query.split('&').filter(pair => !OWN_PARAMETERS.has(parameterName(pair)));
  return kept.length === 0 || (kept.length === 1 && kept[0] === '') ? '' : `?${kept.join('&')}`;
}

function parameterName(pair: string): string {
  const name = (pair.split('=', 1)[0] as string).replaceAll('+', ' ');
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function namedByConnection(connection: string | undefined): ReadonlySet<string> {
  return new Set(connection?.toLowerCase().split(/\s*,\s*/));
}

function withoutToken(cookie: string): string {
  return cookie
    .split(/; */)
    .filter(pair => !/^ *iam_token *=/.test(pair))
    .join('; ');
}

import type { IncomingHttpHeaders } from 'node:http';

/** Headers that the platform owns: credentials, tenant, trace, its own switches, and those of the connection (RFC 9110 §7.6.1). */
const OWNED = new Set([
  'authorization',
  'connection',
  'content-length',
  'expect',
  'host',
  'idempotency-key',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'tenantid',
  'traceparent',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-auth',
  'x-invoke-timeout-ms',
  'x-request-id',
  'x-tenant-id',
  'x-trace-id',
]);

/** The headers of a call as a handler sees them: those that the platform does not own, lower-case, a repeated one joined. */
export function forwardedHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const { connection } = headers;
  const named =
    connection === undefined || connection === 'keep-alive' || connection === 'close'
      ? undefined
      : connection.toLowerCase().split(/\s*,\s*/);
  const forwarded: Record<string, string> = {};
  for (const name in headers) {
    if (OWNED.has(name) || named?.includes(name)) continue;
    const value = headers[name];
    if (value === undefined) continue;
    if (name === 'cookie') {
      const rest = cookiesWithoutToken(value as string);
      if (rest !== '') forwarded[name] = rest;
    } else {
      forwarded[name] = typeof value === 'string' ? value : value.join(', ');
    }
  }
  return forwarded;
}

/** Whether a `Set-Cookie` may set the platform's cookie, for any client: they disagree about white space, prefixes and where a cookie ends. */
export function setsPlatformCookie(value: string): boolean {
  return /iam_token/i.test(value);
}

/** A `Cookie` header without the platform's own. */
export function cookiesWithoutToken(cookie: string): string {
  return cookie
    .split(/;[ \t]*/)
    .filter(pair => !/^\s*(__(host|secure)-)?iam_token\s*(=|$)/i.test(pair))
    .join('; ');
}

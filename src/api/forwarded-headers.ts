import type { IncomingHttpHeaders } from 'node:http';

/**
 * Headers that the platform owns.
 * They are credentials, tenant, trace, switches of the platform, and connection headers (RFC 9110 §7.6.1).
 */
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

/**
 * Returns the headers of a call for its handler, without those that the platform owns.
 * Names are in lower case. The values of a repeated header are joined.
 */
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

/**
 * Returns true if any client could read a `Set-Cookie` value as the platform's cookie.
 * Clients disagree about white space, prefixes and the end of a cookie.
 */
export function setsPlatformCookie(value: string): boolean {
  return /iam_token/i.test(value);
}

/** Removes the platform's cookies from a `Cookie` header. */
export function cookiesWithoutToken(cookie: string): string {
  return cookie
    .split(/;[ \t]*/)
    .filter(pair => !/^\s*(__(host|secure)-)?iam_token\s*(=|$)/i.test(pair))
    .join('; ');
}

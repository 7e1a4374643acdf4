import type { IncomingMessage } from 'node:http';

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

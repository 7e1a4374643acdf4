import type { IncomingMessage } from 'node:http';

/** What a server inside is told of the caller; nobody else tells it. */
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
 * Writes into the headers of a request where it came from, as the server inside gets them; of another replica's request that one has done it. The last
 * address of `X-Forwarded-For` is whose connection it was; those before it are what the caller said.
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

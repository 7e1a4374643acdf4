import { existsSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { FastifyReply, FastifyRequest } from 'fastify';

export const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};

export interface Page {
  readonly type: string;
  readonly plain: Buffer;
  readonly brotli: Buffer | null;
  readonly gzip: Buffer | null;
  readonly cache: string;
}

/** Reads a file that the build wrote, with its compressed copies. */
export function readPage(directory: string, name: string, cache: string): Page {
  const path = join(directory, name);
  const read = (ending: string) => (existsSync(path + ending) ? readFileSync(path + ending) : null);
  return {
    type: TYPES[extname(name)] ?? 'application/octet-stream',
    plain: readFileSync(path),
    brotli: read('.br'),
    gzip: read('.gz'),
    cache,
  };
}

/** Sends a page in the best encoding that the client accepts, with a Content-Security-Policy. */
export function sendPage({ headers }: FastifyRequest, reply: FastifyReply, page: Page, policy: string): FastifyReply {
  const { type, plain, brotli, gzip, cache } = page;
  const accepted = encodingsOf(headers['accept-encoding']);
  const [encoding, body] =
    brotli !== null && accepted.has('br')
      ? ['br', brotli]
      : gzip !== null && accepted.has('gzip')
        ? ['gzip', gzip]
        : ['', plain];
  if (encoding !== '') reply.header('Content-Encoding', encoding);
  return reply
    .header('Cache-Control', cache)
    .header('Content-Security-Policy', policy)
    .header('Cross-Origin-Opener-Policy', 'same-origin')
    .header('Cross-Origin-Resource-Policy', 'same-origin')
    .header('Referrer-Policy', 'no-referrer')
    .header('Vary', 'Accept-Encoding')
    .header('X-Content-Type-Options', 'nosniff')
    .type(type)
    .send(body);
}

/** Returns the encodings of `Accept-Encoding`, except those with `q=0`. */
function encodingsOf(sent: string | string[] | undefined): ReadonlySet<string> {
  const names = String(sent ?? '').split(',');
  return new Set(
    names.filter(name => !/;\s*q=0(\.0*)?\s*$/.test(name)).map(name => (name.split(';', 1)[0] ?? '').trim()),
  );
}

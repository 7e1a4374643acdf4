import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** Where nothing but the service's own files may come from; the page reaches nobody else, and nobody frames it. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};
/** The name has a hash of the content in it. */
const FOREVER = 'public, max-age=31536000, immutable';

interface Page {
  readonly type: string;
  readonly plain: Buffer;
  readonly brotli: Buffer | null;
  readonly gzip: Buffer | null;
  readonly cache: string;
}

/**
 * The files of the dashboard, as the build wrote them: each has a route of its own, so whatever else is asked for is an unknown route as before.
 * `directory` is not there when nobody has built it: then there is no dashboard.
 */
export function addDashboardPages(app: FastifyInstance, directory: string): void {
  if (!existsSync(join(directory, 'index.html'))) return;
  const send = (page: Page) => async (request: FastifyRequest, reply: FastifyReply) => sendPage(request, reply, page);
  app.get('/', { config: { access: 'public', onlyPages: true } }, send(readPage(directory, 'index.html', 'no-cache')));
  for (const name of readdirSync(join(directory, 'assets'))) {
    if (TYPES[extname(name)] === undefined) continue;
    app.get(`/assets/${name}`, { config: { access: 'public' } }, send(readPage(directory, `assets/${name}`, FOREVER)));
  }
}

function readPage(directory: string, name: string, cache: string): Page {
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

function sendPage({ headers }: FastifyRequest, reply: FastifyReply, page: Page): FastifyReply {
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
    .header('Content-Security-Policy', POLICY)
    .header('Cross-Origin-Opener-Policy', 'same-origin')
    .header('Cross-Origin-Resource-Policy', 'same-origin')
    .header('Referrer-Policy', 'no-referrer')
    .header('Vary', 'Accept-Encoding')
    .header('X-Content-Type-Options', 'nosniff')
    .type(type)
    .send(body);
}

/** Those that are not refused with `q=0`. */
function encodingsOf(sent: string | string[] | undefined): ReadonlySet<string> {
  const names = String(sent ?? '').split(',');
  return new Set(
    names.filter(name => !/;\s*q=0(\.0*)?\s*$/.test(name)).map(name => (name.split(';', 1)[0] ?? '').trim()),
  );
}

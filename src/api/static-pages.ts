import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

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

/** Allows only the service's own files. The page cannot connect to another host, and no page can frame it. */
const DASHBOARD_POLICY = [
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

/** Cache policy for files whose names contain a hash of their content. */
const FOREVER = 'public, max-age=31536000, immutable';

/**
 * Serves the files of the dashboard that the build wrote, each at its own route.
 * Any other path stays an unknown route. Serves nothing if `directory` has no `index.html`.
 */
export function addDashboardPages(app: FastifyInstance, directory: string): void {
  if (!existsSync(join(directory, 'index.html'))) return;
  const send = (page: Page) => async (request: FastifyRequest, reply: FastifyReply) =>
    sendPage(request, reply, page, DASHBOARD_POLICY);
  app.get('/', { config: { access: 'public', onlyPages: true } }, send(readPage(directory, 'index.html', 'no-cache')));
  for (const name of readdirSync(join(directory, 'assets'))) {
    if (TYPES[extname(name)] === undefined) continue;
    app.get(`/assets/${name}`, { config: { access: 'public' } }, send(readPage(directory, `assets/${name}`, FOREVER)));
  }
}

/** Allows the style sheet and images of the pages, and no scripts. */
const DOCS_POLICY = [
  "default-src 'none'",
  "style-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * Serves the documents that the build rendered, each at its own route below `/docs`.
 * Serves nothing if `directory` does not exist.
 */
export function addDocPages(app: FastifyInstance, directory: string): void {
  if (!existsSync(directory)) return;
  const send = (page: Page) => async (request: FastifyRequest, reply: FastifyReply) =>
    sendPage(request, reply, page, DOCS_POLICY);
  for (const path of ['/docs', '/docs/'])
    app.get(path, { config: { access: 'public' } }, async (_request, reply) => reply.redirect('/docs/README.html'));
  for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (TYPES[extname(name)] === undefined) continue;
    app.get(`/docs/${name}`, { config: { access: 'public' } }, send(readPage(directory, name, 'no-cache')));
  }
}

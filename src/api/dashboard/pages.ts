import { existsSync, readdirSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Page, readPage, sendPage, TYPES } from '../static-pages.ts';

/** Allows only the service's own files. The page cannot connect to another host, and no page can frame it. */
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

/** Cache policy for files whose names contain a hash of their content. */
const FOREVER = 'public, max-age=31536000, immutable';

/**
 * Serves the files of the dashboard that the build wrote, each at its own route.
 * Any other path stays an unknown route. Serves nothing if `directory` has no `index.html`.
 */
export function addDashboardPages(app: FastifyInstance, directory: string): void {
  if (!existsSync(join(directory, 'index.html'))) return;
  const send = (page: Page) => async (request: FastifyRequest, reply: FastifyReply) =>
    sendPage(request, reply, page, POLICY);
  app.get('/', { config: { access: 'public', onlyPages: true } }, send(readPage(directory, 'index.html', 'no-cache')));
  for (const name of readdirSync(join(directory, 'assets'))) {
    if (TYPES[extname(name)] === undefined) continue;
    app.get(`/assets/${name}`, { config: { access: 'public' } }, send(readPage(directory, `assets/${name}`, FOREVER)));
  }
}

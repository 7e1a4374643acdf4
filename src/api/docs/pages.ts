import { existsSync, readdirSync } from 'node:fs';
import { extname } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Page, readPage, sendPage, TYPES } from '../static-pages.ts';

/** Allows the style sheet and images of the pages, and no scripts. */
const POLICY = [
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
    sendPage(request, reply, page, POLICY);
  for (const path of ['/docs', '/docs/'])
    app.get(path, { config: { access: 'public' } }, async (_request, reply) => reply.redirect('/docs/README.html'));
  for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (TYPES[extname(name)] === undefined) continue;
    app.get(`/docs/${name}`, { config: { access: 'public' } }, send(readPage(directory, name, 'no-cache')));
  }
}

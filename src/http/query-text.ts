import { isUtf8 } from 'node:buffer';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { invalidRequest } from '../core/error.ts';
import { decodedLoosely, queryOf } from '../lib/query-pairs.ts';

const WRONG_ESCAPE = /%(?![0-9a-f]{2})/i;

/**
 * Refuses queries that are not percent-encoded UTF-8, on each route that documents a query.
 * The router would read such a parameter literally: `%FF` would name another file.
 */
export function checkQueries(app: FastifyInstance): void {
  const check = (request: FastifyRequest, _reply: unknown, done: (error?: Error) => void) => {
    const query = queryOf(request.raw.url ?? '');
    if (query === undefined) return done();
    const wrong = query.split('&').find(pair => WRONG_ESCAPE.test(pair) || !isUtf8(bytesOf(pair)));
    if (wrong !== undefined)
      return done(invalidRequest(`invalid query: ${nameOf(wrong)} must be UTF-8, percent-encoded`));
    done();
  };
  // The check is added per route, so that routes without a query pay nothing.
  app.addHook('onRoute', route => {
    const { docs, hasForeignQuery = false } = route.config ?? {};
    if (docs?.querystring === undefined || hasForeignQuery) return;
    route.preValidation = [check, route.preValidation ?? []].flat();
  });
}

/** Returns a parameter's name for an error text, or `a name` if it is empty or not UTF-8. */
function nameOf(pair: string): string {
  const name = bytesOf(pair.split('=', 1)[0] as string);
  return name.length > 0 && isUtf8(name) ? name.toString().slice(0, 40) : 'a name';
}

/** Decodes escapes to bytes. HTTP allows bytes outside of ASCII only in escapes. */
function bytesOf(text: string): Buffer {
  return Buffer.from(decodedLoosely(text), 'latin1');
}

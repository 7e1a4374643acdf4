import { isUtf8 } from 'node:buffer';
import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { invalidRequest } from '../core/error.ts';
import { type JsonObject, readBody } from '../core/json.ts';
import type { Kind } from '../core/kind.ts';
import { LIMITS } from '../core/limits.ts';
import { unknownFieldWarnings } from '../core/unknown-names.ts';
import { decodedLoosely, queryOf } from '../lib/query-pairs.ts';
import { newRequestId } from '../lib/random-ids.ts';
import { parseTraceparent } from '../telemetry/traceparent.ts';

/**
 * The parts of a request that checks and handlers of a hot route read.
 * `node:http` or the service's own reader has parsed the request.
 */
export interface RequestHead {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly socket: Socket;
}

/** The body of a request, and the warnings about it. */
export interface RequestWithBody {
  readonly body: unknown;
  warnings: readonly string[] | null;
}

/**
 * Parses a body with `read`, and stores warnings about the fields that `shape` does not have.
 * `parse` is the entry's own check that a body is a JSON object. Fails with `invalid_request`.
 */
export function readRequest<T>(
  request: RequestWithBody,
  shape: Kind<unknown>,
  read: (body: JsonObject) => T,
  parse: (body: unknown) => JsonObject = body => readBody(body as Buffer | undefined),
): T {
  const body = parse(request.body);
  const value = read(body);
  request.warnings = unknownFieldWarnings(shape, body);
  return value;
}

/** Printable ASCII. Header lines and logs may interpret any other byte differently. */
const PRINTABLE = /^[ -~]+$/;

/**
 * Returns `X-Trace-Id`, else `X-Request-Id`, else the trace of a valid `traceparent`, else a new UUID.
 * Truncates the id to `LIMITS.traceIdChars`. Ignores an id that is not printable ASCII.
 */
export function traceIdOf(headers: IncomingHttpHeaders): string {
  const named = sentId(headers['x-trace-id']) ?? sentId(headers['x-request-id']);
  if (named !== undefined) return named;
  const { traceparent } = headers;
  if (traceparent === undefined) return newRequestId();
  return parseTraceparent(traceparent as string)?.traceId ?? newRequestId();
}

function sentId(sent: string | string[] | undefined): string | undefined {
  if (typeof sent !== 'string') return undefined;
  const cut = sent.length > LIMITS.traceIdChars ? sent.slice(0, LIMITS.traceIdChars) : sent;
  return PRINTABLE.test(cut) ? cut : undefined;
}

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

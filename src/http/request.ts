import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import { type JsonObject, readBody } from '../core/json.ts';
import type { Kind } from '../core/kind.ts';
import { unknownFieldWarnings } from '../core/unknown-fields.ts';

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

import type { FastifyRequest } from 'fastify';
import { type JsonObject, readBody } from '../../core/json.ts';

/** Reads the body. Clients may omit it where every field is optional. */
export function bodyOf({ body }: Pick<FastifyRequest, 'body'>): JsonObject {
  const bytes = body as Buffer | undefined;
  return bytes === undefined || bytes.length === 0 ? {} : readBody(bytes);
}

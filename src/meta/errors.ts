import { META_CODES } from '../core/codes.ts';
import { Away } from '../core/error.ts';
import type { ErrorTable } from '../http/answer.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** HTTP status of a request that is wrong by itself, where the specification lists no 400. */
    wrongRequestStatus?: 200;
  }
}

/**
 * The meta_service's one table from error to status. A request that is wrong by itself is a 400, or a 200 where its route says so;
 * one that is wrong only because of what is stored is a 200 that carries its code; only faults of the service are a 500, or a 503 when they
 * pass by themselves (the database of several replicas is away).
 */
export const metaErrors: ErrorTable = (error, request) => {
  const { number } = error;
  const body = { code: number ?? META_CODES.internal.code, message: error.message, ...error.body };
  switch (error.code) {
    case 'invalid_request': {
      const status = number === META_CODES.notJson.code ? 400 : (request.route.wrongRequestStatus ?? 400);
      return { status, body: { ...body, code: number ?? META_CODES.invalid.code } };
    }
    case 'not_found':
    case 'already_exists':
    case 'failed_precondition':
      return { status: number === undefined ? 500 : 200, body };
    case 'resource_exhausted':
      return { status: 429, body: { ...body, code: 429 } };
    default:
      return error instanceof Away ? { status: 503, body: { ...body, code: 503 } } : { status: 500, body };
  }
};

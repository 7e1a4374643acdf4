import { META_CODES } from '../../core/codes.ts';
import { Away } from '../../core/error.ts';
import type { ErrorTable } from '../../http/answer.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** HTTP status of a request that is invalid by itself, where the specification lists no 400. */
    wrongRequestStatus?: 200;
  }
}

/**
 * Maps each error to a status of the meta_service.
 * A request that is invalid by itself: 400, or 200 if its route says so.
 * A request that conflicts with stored records: 200 with its code.
 * A fault of the service: 500, or 503 if it is temporary (the database of several replicas is unreachable).
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
    case 'permission_denied':
      return { status: 403, body: { ...body, code: 403 } };
    case 'resource_exhausted':
      return { status: 429, body: { ...body, code: 429 } };
    default:
      return error instanceof Away ? { status: 503, body: { ...body, code: 503 } } : { status: 500, body };
  }
};

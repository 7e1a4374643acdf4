import type { FastifyInstance } from 'fastify';
import { internal, ServiceError } from '../../core/error.ts';
import { retryAfter } from '../../http/answer.ts';
import { frontendErrors } from '../errors.ts';

const TEXT = 'text/plain; charset=utf-8';

/**
 * Answers errors of these routes with a plain sentence instead of JSON, because the Ray client prints the
 * body.
 * The status is the `number` of a `ServiceError` if it has one.
 */
export function answerErrorsAsText(scope: FastifyInstance): void {
  scope.setErrorHandler((error, request, reply) => {
    const known = asServiceError(error, request.traceId);
    if (known === null) throw error;
    request.failure = known;
    if (known.retryAfterSeconds !== undefined) reply.header('Retry-After', retryAfter(known.retryAfterSeconds));
    const status = known.number ?? frontendErrors(known).status;
    return reply.code(status).type(TEXT).send(known.message);
  });
}

/** Converts an error to a `ServiceError`. null: the entry answers the error. */
function asServiceError(error: unknown, traceId: string): ServiceError | null {
  if (error instanceof ServiceError) return error;
  const status = (error as { statusCode?: number }).statusCode;
  if (status !== undefined && status < 500) return null;
  return internal(`internal error: the log has it under trace id ${traceId}`, { cause: error });
}

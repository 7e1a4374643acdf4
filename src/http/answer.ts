import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorCode, ServiceError } from '../core/error.ts';

/** One HTTP answer that an error becomes. `body` is sent as JSON. */
export interface ErrorAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

/** An entry's one table: which status (and body) each error has. */
export type ErrorTable = (error: ServiceError, request: FastifyRequest) => ErrorAnswer;

/** Refusals by the entry itself look alike on both entries: `{"code":<status>,"message":"…"}`. */
export function refusal(status: number, message: string): ErrorAnswer {
  return { status, body: { code: status, message } };
}

/** Status of the errors with which an entry refuses a request before any route sees it. */
export const REFUSAL_STATUS: Partial<Record<ErrorCode, number>> = {
  invalid_request: 400,
  unauthenticated: 401,
  permission_denied: 403,
};

/** Sends the answer of an error, and keeps `error` for the access log. */
export function sendError(reply: FastifyReply, error: ServiceError, answer: ErrorAnswer): FastifyReply {
  reply.request.failure = error;
  if (error.retryAfterSeconds !== undefined) reply.header('Retry-After', String(error.retryAfterSeconds));
  if (answer.status === 401) reply.header('WWW-Authenticate', 'Bearer');
  return reply.code(answer.status).send(answer.body);
}

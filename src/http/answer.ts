import type { FastifyReply, FastifyRequest } from 'fastify';
import { type ErrorCode, ServiceError } from '../core/error.ts';

/** HTTP answer to an error. `body` is sent as JSON. */
export interface ErrorAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Maps each error to the status and body that one entry answers with. */
export type ErrorTable = (error: ServiceError, request: Pick<FastifyRequest, 'route'>) => ErrorAnswer;

/**
 * Builds the answer for a request that the entry itself refuses: `{"code":<status>,"message":"…"}`. Both
 * entries use the same form.
 */
export function refusal(status: number, message: string): ErrorAnswer {
  return { status, body: { code: status, message } };
}

/** Status of each error with which an entry refuses a request before a route handles it. */
export const REFUSAL_STATUS: Partial<Record<ErrorCode, number>> = {
  invalid_request: 400,
  unauthenticated: 401,
  permission_denied: 403,
};

export const JSON_TYPE = 'application/json; charset=utf-8';

/**
 * Converts a value to header text. Replaces each character that a header cannot contain with a question mark.
 * Never throws.
 */
export function headerText(value: unknown): string {
  return String(value).replace(/[^\t\x20-\x7e\x80-\xff]/g, '?');
}

/**
 * Formats `Retry-After` in whole seconds. Returns `1` for a value that is absent or outside of 1 to 86400.
 */
export function retryAfter(seconds: number | undefined): string {
  const whole = Math.ceil(Number(seconds));
  return whole >= 1 && whole <= 86_400 ? String(whole) : '1';
}

/** Returns the headers of an error answer as alternating names and values. */
export function errorHeaders(error: ServiceError | string, status: number): readonly string[] {
  const headers: string[] = [];
  if (error instanceof ServiceError && error.retryAfterSeconds !== undefined) {
    headers.push('Retry-After', retryAfter(error.retryAfterSeconds));
  }
  if (error instanceof ServiceError && error.advice !== undefined) headers.push('X-Advice', headerText(error.advice));
  if (status === 401) headers.push('WWW-Authenticate', 'Bearer');
  return headers;
}

/** Adds the member `warnings` to an answer, unless there are no warnings. */
export function withWarnings<T extends object>(answer: T, warnings: readonly string[] | null): T {
  return warnings === null || warnings.length === 0 ? answer : { ...answer, warnings };
}

/** Sends the answer to an error, and stores `error` for the access log. */
export function sendError(reply: FastifyReply, error: ServiceError | string, answer: ErrorAnswer): FastifyReply {
  reply.request.failure = error;
  const headers = errorHeaders(error, answer.status);
  for (let at = 0; at < headers.length; at += 2) reply.header(headers[at] as string, headers[at + 1]);
  return reply.code(answer.status).send(withWarnings(answer.body, reply.request.warnings));
}

import type { FastifyReply, FastifyRequest } from 'fastify';
import { type ErrorCode, ServiceError } from '../core/error.ts';

/** One HTTP answer that an error becomes. `body` is sent as JSON. */
export interface ErrorAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

/** An entry's one table: which status (and body) each error has. */
export type ErrorTable = (error: ServiceError, request: Pick<FastifyRequest, 'route'>) => ErrorAnswer;

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

export const JSON_TYPE = 'application/json; charset=utf-8';

/** A text as the value of a header: what cannot stand in one becomes a question mark. Never throws. */
export function headerText(value: unknown): string {
  return String(value).replace(/[^\t\x20-\x7e\x80-\xff]/g, '?');
}

/** `Retry-After`: whole seconds, at least one. */
export function retryAfter(seconds: number | undefined): string {
  const whole = Math.ceil(Number(seconds));
  return whole >= 1 && whole <= 86_400 ? String(whole) : '1';
}

/** The headers, names and values in turn, that come with the answer of an error. */
export function errorHeaders(error: ServiceError | string, status: number): readonly string[] {
  const headers: string[] = [];
  if (error instanceof ServiceError && error.retryAfterSeconds !== undefined) {
    headers.push('Retry-After', retryAfter(error.retryAfterSeconds));
  }
  if (error instanceof ServiceError && error.advice !== undefined) headers.push('X-Advice', headerText(error.advice));
  if (status === 401) headers.push('WWW-Authenticate', 'Bearer');
  return headers;
}

/** The member `warnings` of an answer; none when there is nothing to warn of. */
export function withWarnings<T extends object>(answer: T, warnings: readonly string[] | null): T {
  return warnings === null || warnings.length === 0 ? answer : { ...answer, warnings };
}

/** Sends the answer of an error, and keeps `error` for the access log. */
export function sendError(reply: FastifyReply, error: ServiceError | string, answer: ErrorAnswer): FastifyReply {
  reply.request.failure = error;
  const headers = errorHeaders(error, answer.status);
  for (let at = 0; at < headers.length; at += 2) reply.header(headers[at] as string, headers[at + 1]);
  return reply.code(answer.status).send(withWarnings(answer.body, reply.request.warnings));
}

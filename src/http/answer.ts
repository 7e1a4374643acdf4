import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type ErrorCode, internal, ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import { BodyError } from './limits/bodies.ts';
import { traceIdOf } from './request.ts';

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

const DISK_RETRY_SECONDS = 5;

/** Maps the errors of routes to answers with `errors`, and answers unknown routes. */
export function addErrorAnswers(app: FastifyInstance, errors: ErrorTable): void {
  app.setNotFoundHandler(answerUnknownRoute);
  app.setErrorHandler((error, request, reply) => answerError(error as Error, request, reply, errors));
}

/** Answers 404 for unknown paths and methods. Omits the query, which may contain a token. */
export function answerUnknownRoute(request: FastifyRequest, reply: FastifyReply): void {
  const path = (request.raw.url ?? '').split('?', 1)[0];
  const { status, body } = refusal(404, `route not found: ${request.method} ${path}`);
  reply.code(status).send(body);
}

/** Returns a function that answers a request which the router itself refuses, before any hook runs. */
export function answeringRouterErrors(wrongRequestCode: number) {
  return (error: FastifyError, request: FastifyRequest, reply: FastifyReply): void => {
    reply.header('X-Trace-Id', traceIdOf(request.raw.headers));
    reply.header('X-Content-Type-Options', 'nosniff');
    const { status, body } = refusal(error.statusCode ?? 400, `invalid request: ${error.message}`);
    reply.code(status).send(status === 400 ? { ...body, code: wrongRequestCode } : body);
  };
}

function answerError(error: Error, request: FastifyRequest, reply: FastifyReply, errors: ErrorTable): void {
  if (error instanceof ServiceError) {
    sendError(reply, error, errors(error, request));
    return;
  }
  const status = (error as FastifyError).statusCode ?? 500;
  if (status === 413) {
    // Discards the rest of the body: an immediate close could reset the connection before the client reads.
    reply.removeHeader('connection');
    request.raw.resume();
    const limit = request.routeOptions.bodyLimit ?? LIMITS.requestBodyBytes;
    const answer = refusal(413, `request body is larger than ${limit} bytes`);
    request.failure = 'request body too large';
    reply.code(413).send(answer.body);
    return;
  }
  if (status >= 400 && status < 500) {
    request.failure = error.message;
    // The rest of the body may never arrive.
    if (error instanceof BodyError) reply.header('Connection', 'close');
    reply.code(status).send(refusal(status, `invalid request: ${error.message}`).body);
    return;
  }
  if (isDiskFull(error)) {
    const full = unavailable('the disk is full', { cause: error, retryAfterSeconds: DISK_RETRY_SECONDS });
    sendError(reply, full, errors(full, request));
    return;
  }
  const fault = internal(`internal error: the log has it under trace id ${request.traceId}`, { cause: error });
  sendError(reply, fault, errors(fault, request));
}

/** Answers bytes that never become a request: not HTTP, too large, or too slow. */
export function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, reason, message] = CLIENT_ERRORS[error.code ?? ''] ?? NOT_HTTP;
  const body = JSON.stringify({ code: status, message });
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

type ClientError = readonly [status: number, reason: string, message: string];
const NOT_HTTP: ClientError = [400, 'Bad Request', 'the request is not valid HTTP'];
const CLIENT_ERRORS: Readonly<Record<string, ClientError>> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout', 'the request took too long to arrive'],
  HPE_HEADER_OVERFLOW: [431, 'Request Header Fields Too Large', 'the request line and headers are too large'],
};

import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { internal, ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import { type ErrorTable, refusal, sendError } from './answer.ts';
import { BodyError } from './limits/bodies.ts';
import { traceIdOf } from './trace.ts';

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

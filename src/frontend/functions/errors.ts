import type { FastifyReply } from 'fastify';
import { ServiceError } from '../../core/error.ts';
import { headerText, retryAfter } from '../../http/answer.ts';
import type { Exchange, HeaderList } from '../../http/exchange.ts';

/** HTTP status of each code with which a call of a function fails (decisions §6). User code's own codes are 500. */
const STATUS: ReadonlyMap<unknown, number> = new Map([
  [200400, 400],
  [4037, 400],
  [150444, 400],
  [150424, 404],
  [200404, 404],
  [4140, 413],
  [150429, 429],
  [150510, 429],
  [150431, 503],
  [4010, 504],
]);

/** The code of a failure that has no row of its own. */
const NUMBER_OF: ReadonlyMap<unknown, number> = new Map([
  ['invalid_request', 200400],
  ['failed_precondition', 150500],
  ['not_found', 150424],
  ['resource_exhausted', 150429],
  ['deadline_exceeded', 4010],
]);

/** An instance could not be started, and not for a reason in the user's code. */
const START_FAILED = 150500;

export interface FunctionFailure {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  readonly retryAfterSeconds?: number | undefined;
  readonly cause?: unknown;
}

export function userFailure(code: number, message: string): FunctionFailure {
  return { status: STATUS.get(code) ?? 500, code, message };
}

/** What a thrown error is to the caller of a function. */
export function functionFailure(error: unknown, traceId: string): FunctionFailure {
  if (!(error instanceof ServiceError)) {
    return {
      status: 500,
      code: 500,
      message: `internal error: the log has it under trace id ${traceId}`,
      cause: error,
    };
  }
  const code = error.number ?? NUMBER_OF.get(error.code) ?? START_FAILED;
  return {
    status: STATUS.get(code) ?? 500,
    code,
    message: error.message,
    retryAfterSeconds: error.retryAfterSeconds,
    cause: error.cause,
  };
}

export function sendFunctionFailure(reply: FastifyReply, failure: FunctionFailure): void {
  const { status } = failure;
  reply.request.failure = reasonOf(failure);
  const headers = failureHeaders(failure);
  for (let at = 0; at < headers.length; at += 2) reply.header(headers[at] as string, headers[at + 1]);
  reply.code(status).send(functionFailureBody(failure, reply.request.traceId));
}

/** `headers`: what the call has come to before it failed. */
export function failExchange(exchange: Exchange, failure: FunctionFailure, headers: HeaderList = []): void {
  const body = functionFailureBody(failure, exchange.traceId);
  exchange.fail(reasonOf(failure), { status: failure.status, body }, [...failureHeaders(failure), ...headers]);
}

function reasonOf({ code, message, cause }: FunctionFailure): string {
  return cause instanceof Error ? `${code} ${message} (${cause.message})` : `${code} ${message}`;
}

function failureHeaders({ status, code, retryAfterSeconds }: FunctionFailure): string[] {
  const headers = ['X-Inner-Code', headerText(code)];
  if (status === 429 || status === 503) headers.push('Retry-After', retryAfter(retryAfterSeconds));
  return headers;
}

export function functionFailureBody({ code, message }: FunctionFailure, traceId: string): Record<string, unknown> {
  return { code, message, trace_id: traceId };
}

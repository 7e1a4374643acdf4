import type { FastifyReply } from 'fastify';
import { CALL_CODES, SERVICE_CODES } from '../../core/codes.ts';
import { Away, PartAway, ServiceError } from '../../core/error.ts';
import { headerText, retryAfter } from '../../http/answer.ts';
import type { Exchange, HeaderList } from '../../http/hot/exchange.ts';

const STATUS: ReadonlyMap<number, number> = new Map(CALL_CODES.map(row => [row.code, row.status]));

/** Maps the codes of `ServiceError` to call codes, for failures without a number. */
const NUMBER_OF: ReadonlyMap<string, number> = new Map(
  CALL_CODES.flatMap(({ standsFor, code }) => (standsFor === undefined ? [] : [[standsFor, code]])),
);

export interface FunctionFailure {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  readonly retryAfterSeconds?: number | undefined;
  readonly cause?: unknown;
  /** True if user code failed, and not the service. */
  readonly isOfUser?: true;
}

export function userFailure(code: number, message: string): FunctionFailure {
  return { status: STATUS.get(code) ?? 500, code, message, isOfUser: true };
}

/** Converts a thrown error to the failure that the caller of a function sees. */
export function functionFailure(error: unknown, traceId: string): FunctionFailure {
  if (!(error instanceof ServiceError)) {
    return {
      status: 500,
      code: 500,
      message: `internal error: the log has it under trace id ${traceId}`,
      cause: error,
    };
  }
  if (error instanceof Away) {
    const { message, retryAfterSeconds, cause } = error;
    return { status: 503, code: error.number ?? 503, message, retryAfterSeconds, cause };
  }
  if (error instanceof PartAway) {
    const { message, retryAfterSeconds, cause } = error;
    return { status: 503, code: error.number ?? SERVICE_CODES.startFailed.code, message, retryAfterSeconds, cause };
  }
  const code = error.number ?? NUMBER_OF.get(error.code) ?? SERVICE_CODES.startFailed.code;
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

/** Answers with a failure. `headers`: the headers of the call that were known before the failure. */
export function failExchange(exchange: Exchange, failure: FunctionFailure, headers: HeaderList = []): void {
  const body = functionFailureBody(failure, exchange.traceId);
  exchange.fail(reasonOf(failure), { status: failure.status, body }, [...failureHeaders(failure), ...headers]);
}

function reasonOf({ code, message, cause, isOfUser }: FunctionFailure): ServiceError | string {
  if (isOfUser) return new ServiceError('execution_failed', `code=${code} err=${message}`);
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

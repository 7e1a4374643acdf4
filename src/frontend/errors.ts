import { Away, type ErrorCode, internal, ServiceError } from '../core/error.ts';
import { type ErrorAnswer, withWarnings } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';

/** The frontend's one table from error to status; the envelope is `{"code":<status>,"message":"…"}`. */
const STATUS: Readonly<Record<ErrorCode, number>> = {
  invalid_request: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  already_exists: 409,
  failed_precondition: 409,
  resource_exhausted: 429,
  execution_failed: 500,
  internal: 500,
  unavailable: 503,
  deadline_exceeded: 504,
};

export function frontendErrors(error: ServiceError): ErrorAnswer {
  // A code may come out of a sandbox.
  const status = Object.hasOwn(STATUS, error.code) ? STATUS[error.code] : 500;
  return { status, body: { code: status, message: error.message, ...error.body } };
}

/** Answers an exchange with an error, and with what there is to be warned of beside it. */
export function refuseExchange(exchange: Exchange, error: unknown, warnings: readonly string[] | null = null): void {
  if (!(error instanceof ServiceError)) {
    exchange.fault(error);
    return;
  }
  const { status, body } = frontendErrors(error);
  exchange.fail(error, { status, body: withWarnings(body, warnings) });
}

/**
 * The error of a step that failed: `<what>: <cause>`, status 500, but for what the caller did wrong (`invalid_request`, `not_found`: as they
 * are), for a name that is taken (409), and while the database of several replicas is away (503).
 */
export function stepFailed(what: string, error: unknown, traceId: string): ServiceError {
  if (!(error instanceof ServiceError)) {
    return internal(`${what}: internal error, the log has it under trace id ${traceId}`, { cause: error });
  }
  if (error.code === 'invalid_request' || error.code === 'not_found') return error;
  const code = error.code === 'already_exists' || error instanceof Away ? error.code : 'internal';
  return new ServiceError(code, `${what}: ${error.message}`, {
    cause: error.cause,
    ...(error.advice === undefined ? {} : { advice: error.advice }),
    ...(error.body === undefined ? {} : { body: error.body }),
    ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
  });
}

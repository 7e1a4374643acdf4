import { Away, type ErrorCode, internal, ServiceError } from '../core/error.ts';
import type { ErrorAnswer } from '../http/answer.ts';

/** Maps each error code to a status of the frontend. The body is `{"code":<status>,"message":"…"}`. */
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
  // A code may come out of a sandbox, so it may be unknown.
  const status = Object.hasOwn(STATUS, error.code) ? STATUS[error.code] : 500;
  return { status, body: { code: status, message: error.message, ...error.body } };
}

/**
 * Builds the error of a failed step: `<what>: <cause>`, status 500.
 * Returns `invalid_request` and `not_found` unchanged, because the caller caused them.
 * Keeps the status for a taken name (409), and while the database of several replicas is unreachable (503).
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

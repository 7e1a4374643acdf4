import { RookeryError, type RookeryErrorDetails } from './error.ts';

/** The request is wrong: a field, a header, its size, or its combination with stored data. */
export class InvalidRequest extends RookeryError {}

/** The agent, function, version, job, file or id does not exist. */
export class NotFound extends RookeryError {}

/** The request conflicts with the stored state: a taken name, a stale revision, a running operation. */
export class Conflict extends RookeryError {}

/** The token is absent, unknown or expired. */
export class Unauthenticated extends RookeryError {}

/** The token does not permit the request. */
export class PermissionDenied extends RookeryError {}

/** A limit is reached. `retryAfterSeconds` says when a retry may succeed. */
export class RateLimited extends RookeryError {}

/** The call, the request or the wait took longer than its limit. */
export class Timeout extends RookeryError {}

/** User code failed: it did not load, it raised, its result is invalid, or its process ended. */
export class ExecutionFailed extends RookeryError {}

/** The service, or a part that it needs, cannot be reached or has no capacity now. */
export class Unavailable extends RookeryError {}

/** The service failed. Its log has the cause under `traceId`. */
export class InternalError extends RookeryError {}

type Failure = new (message: string, details?: RookeryErrorDetails) => RookeryError;

/** Class of each code in docs/reference/errors.md. The client for Python has the same table. */
export const FAILURE_OF_CODE: ReadonlyMap<number, Failure> = new Map<number, Failure>([
  [500, InternalError],
  [4101, Conflict],
  [4104, InvalidRequest],
  [4110, Conflict],
  [4114, Conflict],
  [4115, NotFound],
  [4120, NotFound],
  [4134, Conflict],
  [130600, InvalidRequest],
  [4000, InternalError],
  [4001, ExecutionFailed],
  [4002, ExecutionFailed],
  [4004, ExecutionFailed],
  [4007, ExecutionFailed],
  [4009, ExecutionFailed],
  [4010, Timeout],
  [4140, InvalidRequest],
  [4201, ExecutionFailed],
  [4211, Timeout],
  [4037, InvalidRequest],
  [150424, NotFound],
  [150427, ExecutionFailed],
  [150429, RateLimited],
  [150431, Unavailable],
  [150444, NotFound],
  [150500, Unavailable],
  [150503, Unavailable],
  [150510, RateLimited],
  [200400, InvalidRequest],
  [200404, NotFound],
]);

/** Class of each HTTP status that has a class of its own. */
export const FAILURE_OF_STATUS: ReadonlyMap<number, Failure> = new Map<number, Failure>([
  [401, Unauthenticated],
  [403, PermissionDenied],
  [404, NotFound],
  [408, Timeout],
  [409, Conflict],
  [429, RateLimited],
  [502, Unavailable],
  [503, Unavailable],
  [504, Timeout],
]);

/**
 * Makes the error of an answer. The code decides on its class: first that of the failed user code, then that
 * of the answer, then the HTTP status. Without a class for them it is a plain `RookeryError`.
 */
export function failureOf(message: string, details: RookeryErrorDetails): RookeryError {
  const { status = 0, code = status, innerCode = code } = details;
  const known = FAILURE_OF_CODE.get(innerCode) ?? FAILURE_OF_CODE.get(code) ?? ofStatus(code) ?? ofStatus(status);
  return new (known ?? RookeryError)(message, details);
}

function ofStatus(status: number): Failure | undefined {
  const own = FAILURE_OF_STATUS.get(status);
  if (own !== undefined || status < 400 || status >= 600) return own;
  return status < 500 ? InvalidRequest : InternalError;
}

import { LIMITS } from './limits.ts';

/**
 * The one error type that crosses folder borders, and a constructor function for each code that we fail with.
 *
 * Adapters (drivers, storage, HTTP clients) turn foreign errors into a `ServiceError` at their own border; each HTTP
 * entry has one table from `code` to status and envelope. `message` is a plain sentence that a caller may read;
 * `cause` is for the log only. Failures of the user's code are not errors of ours: they are data
 * (`CallOutcome` in `runtime/call.ts`) until the frontend answers.
 */
export type ErrorCode =
  | 'invalid_request'
  | 'unauthenticated'
  | 'permission_denied'
  | 'not_found'
  | 'already_exists'
  | 'failed_precondition'
  | 'resource_exhausted'
  | 'unavailable'
  | 'deadline_exceeded'
  | 'execution_failed'
  | 'internal';

export interface ErrorDetails {
  /** For the log, never for the caller. */
  readonly cause?: unknown;
  /** When the caller may try again (`Retry-After`), whole seconds, at least 1. */
  readonly retryAfterSeconds?: number;
  /** Advice for the caller, where the message is fixed: the answer's header `X-Advice`. */
  readonly advice?: string;
  /** Extra members of the answer's body: the `instance_id` that holds a name. */
  readonly body?: Readonly<Record<string, unknown>>;
  /** The numeric code of the specification (meta_service, function service), where the entry's table has several. */
  readonly number?: number;
}

export class ServiceError extends Error {
  override readonly name = 'ServiceError';
  readonly code: ErrorCode;
  readonly retryAfterSeconds: number | undefined;
  readonly advice: string | undefined;
  readonly body: Readonly<Record<string, unknown>> | undefined;
  readonly number: number | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    // Under overload refusals come by the thousand; looking where each one was made would cost more than the call that it refuses. A deadline is
    // made by a timer, or by a signal that tells many things at once that they are over.
    const { stackTraceLimit } = Error;
    if (code === 'resource_exhausted' || code === 'deadline_exceeded') Error.stackTraceLimit = 0;
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.code = code;
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.advice = details.advice;
    this.body = details.body;
    this.number = details.number;
  }
}

/**
 * The database of several replicas, or another of them, is away for a moment: 503 wherever that happens, also where another failure of a step is
 * a 500.
 */
export class Away extends ServiceError {
  constructor(message: string, details: ErrorDetails) {
    super('unavailable', message, details);
  }
}

const constructorOf =
  (code: ErrorCode) =>
  (message: string, details?: ErrorDetails): ServiceError =>
    new ServiceError(code, message, details);

export const invalidRequest = constructorOf('invalid_request');
export const unauthenticated = constructorOf('unauthenticated');
export const permissionDenied = constructorOf('permission_denied');
export const notFound = constructorOf('not_found');
export const alreadyExists = constructorOf('already_exists');
export const failedPrecondition = constructorOf('failed_precondition');
export const resourceExhausted = constructorOf('resource_exhausted');
export const unavailable = constructorOf('unavailable');
export const deadlineExceeded = constructorOf('deadline_exceeded');
export const internal = constructorOf('internal');

/** The message of anything that was thrown, for logs and for `failed to create agent: <cause>`. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Someone else's text for a log or a header: one line, cut to `LIMITS.loggedErrorChars`. */
export function loggable(text: string): string {
  const { loggedErrorChars } = LIMITS;
  const line = text.slice(0, loggedErrorChars).replace(/[\p{Cc}\u2028\u2029]+/gu, ' ');
  return text.length <= loggedErrorChars ? line : `${line}...`;
}

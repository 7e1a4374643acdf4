import { LIMITS } from './limits.ts';

/**
 * The one error type that crosses folder borders, with a constructor function for each code. Adapters
 * (drivers, storage, HTTP clients) convert foreign errors into a `ServiceError` at their own border. Each
 * HTTP entry has one table from `code` to status and envelope. `message` is a plain sentence that a caller
 * may read; `cause` is for the log only. Failures of user code are data (`CallOutcome` in `runtime/call.ts`)
 * until the frontend answers.
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
  /** Delay in whole seconds, at least 1, after which the caller may retry (`Retry-After`). */
  readonly retryAfterSeconds?: number;
  /**
   * Advice for the caller where the message is fixed. The answer carries the advice in the header `X-Advice`.
   */
  readonly advice?: string;
  /** Extra members of the answer's body, such as the `instance_id` that holds a name. */
  readonly body?: Readonly<Record<string, unknown>>;
  /**
   * Numeric code of the specification (meta_service, function service), where the entry's table has several.
   */
  readonly number?: number;
}

/**
 * Codes of errors without a stack. Such errors are frequent or report user code, so a stack of the service
 * has no information.
 */
const STACKLESS: ReadonlySet<ErrorCode> = new Set(['resource_exhausted', 'deadline_exceeded', 'execution_failed']);

export class ServiceError extends Error {
  override readonly name = 'ServiceError';
  readonly code: ErrorCode;
  readonly retryAfterSeconds: number | undefined;
  readonly advice: string | undefined;
  readonly body: Readonly<Record<string, unknown>> | undefined;
  readonly number: number | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    // Under overload the service creates thousands of refusals, and a stack costs more than the refused call.
    // Deadline errors come from a timer or a shared signal, so their stack says nothing.
    const { stackTraceLimit } = Error;
    if (STACKLESS.has(code)) Error.stackTraceLimit = 0;
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
 * Reports that the shared database or another replica is temporarily unavailable. The answer is always 503,
 * even where another failure of the same step answers 500.
 */
export class Away extends ServiceError {
  constructor(message: string, details: ErrorDetails) {
    super('unavailable', message, details);
  }
}

/** Refuses a request that must not wake its sleeping agent. Calls answer 409 too. */
export class Asleep extends ServiceError {
  constructor(message: string) {
    super('failed_precondition', message);
  }
}

/** Reports that a durable agent's state could not be saved: the call changed nothing. Answered with 503. */
export class StateUnsaved extends Away {}

/**
 * Reports that a required component fails: a zygote, Docker, the Kubernetes API server or an object store.
 * The message names the component. Calls of functions answer 503.
 */
export class PartAway extends ServiceError {
  constructor(message: string, details: ErrorDetails = {}) {
    super('unavailable', message, { retryAfterSeconds: PART_AWAY_SECONDS, ...details });
  }
}

const PART_AWAY_SECONDS = 5;

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

/** Returns the message of any thrown value, for logs and for `failed to create agent: <cause>`. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Returns a foreign text as one line for a log or a header, cut to `LIMITS.loggedErrorChars`. */
export function loggable(text: string): string {
  const { loggedErrorChars } = LIMITS;
  const line = text.slice(0, loggedErrorChars).replace(/[\p{Cc}\u2028\u2029]+/gu, ' ');
  return text.length <= loggedErrorChars ? line : `${line}...`;
}

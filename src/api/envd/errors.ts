import { type ErrorCode, messageOf, ServiceError } from '../../core/error.ts';

/** HTTP statuses of the Connect protocol's error codes in answers of unary calls. */
const STATUSES = {
  canceled: 499,
  unknown: 500,
  invalid_argument: 400,
  deadline_exceeded: 504,
  not_found: 404,
  already_exists: 409,
  permission_denied: 403,
  resource_exhausted: 429,
  failed_precondition: 400,
  unimplemented: 501,
  internal: 500,
  unavailable: 503,
  unauthenticated: 401,
} as const;

export type ConnectCode = keyof typeof STATUSES;

const CODES: Readonly<Record<ErrorCode, ConnectCode>> = {
  invalid_request: 'invalid_argument',
  unauthenticated: 'unauthenticated',
  permission_denied: 'permission_denied',
  not_found: 'not_found',
  already_exists: 'already_exists',
  failed_precondition: 'failed_precondition',
  resource_exhausted: 'resource_exhausted',
  unavailable: 'unavailable',
  deadline_exceeded: 'deadline_exceeded',
  execution_failed: 'internal',
  internal: 'internal',
};

/** An error in the terms of the Connect protocol. */
export class ConnectError extends Error {
  override readonly name = 'ConnectError';
  readonly code: ConnectCode;

  constructor(code: ConnectCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }

  get status(): number {
    return STATUSES[this.code];
  }
}

/** Returns the Connect error of any thrown value. An unexpected error has no text for clients. */
export function toConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError) return error;
  if (error instanceof ServiceError) return new ConnectError(CODES[error.code], error.message, error);
  return new ConnectError('internal', 'internal error', error);
}

/** An answer of the HTTP routes of port 49983, whose body has the status as its code. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: number;

  constructor(status: number, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
  }
}

const HTTP_STATUSES: Readonly<Record<ErrorCode, number>> = {
  invalid_request: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  already_exists: 400,
  failed_precondition: 400,
  resource_exhausted: 429,
  unavailable: 503,
  deadline_exceeded: 504,
  execution_failed: 500,
  internal: 500,
};

/** Returns the HTTP error of any thrown value. An unexpected error has no text for clients. */
export function toHttpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (error instanceof ServiceError) return new HttpError(HTTP_STATUSES[error.code], error.message, error);
  return new HttpError(500, 'internal error', error);
}

/** Returns the reason of a failure for the access log, including what the client does not see. */
export function reasonOf(error: Error): string {
  const { cause } = error;
  return cause === undefined || messageOf(cause) === error.message
    ? error.message
    : `${error.message}: ${messageOf(cause)}`;
}

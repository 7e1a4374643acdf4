import { Away, messageOf, ServiceError } from '../../core/error.ts';

/** An error that the server itself reported: `code` is the SQLSTATE. */
interface ServerError extends Error {
  readonly code: string;
  readonly severity: string;
}

/**
 * The server is starting, stopping or full, or is read-only, as after a failover. Another connection may
 * succeed.
 */
const AWAY = new Set(['57P01', '57P02', '57P03', '57P05', '25006', '53300']);
/** The server did not run the statement, so that any statement may be retried. */
const REFUSED = new Set(['57P03', '25006', '53300']);
/** Wrong user, wrong password, unknown database. */
const WRONG_URL = new Set(['28000', '28P01', '3D000']);
const SERIALIZATION_FAILURE = '40001';
const DEADLOCK = '40P01';
const DISK_RETRY_SECONDS = 5;

function isOfServer(error: unknown): error is ServerError {
  return error instanceof Error && 'severity' in error && 'code' in error;
}

function stateOf(error: unknown): string {
  return isOfServer(error) ? error.code : '';
}

/** Returns true when the connection is unusable: the server stopped, does not answer, or refuses writes. */
export function isAway(error: unknown): boolean {
  if (error instanceof ServiceError || error instanceof TypeError || !(error instanceof Error)) return false;
  // All other errors of `pg` are about the connection: a socket error, or a missing reply.
  return !isOfServer(error) || AWAY.has(error.code) || error.code.startsWith('08');
}

/** Returns true when the server refused a statement before running it. */
export function isRefused(error: unknown): boolean {
  return REFUSED.has(stateOf(error));
}

/** Returns true when the server refused the user, the password or the name of the database. */
export function isWrongUrl(error: unknown): boolean {
  return WRONG_URL.has(stateOf(error));
}

/** Returns true when two transactions conflicted. This one wrote nothing, so a retry may succeed. */
export function isConflict(error: unknown): boolean {
  const state = stateOf(error);
  return state === SERIALIZATION_FAILURE || state === DEADLOCK;
}

/**
 * Converts a temporary failure of the database into an error that a caller may read. Returns other errors
 * unchanged. Nothing was written.
 */
export function readable(error: unknown): unknown {
  if (isAway(error)) return away(error);
  const about = { cause: error, retryAfterSeconds: 1 };
  switch (stateOf(error)) {
    case SERIALIZATION_FAILURE:
    case DEADLOCK:
      return new Away('other changes of the same things were in the way: nothing was written', about);
    case '55P03':
      return new Away('another change of the same things did not end in time: nothing was written', about);
    case '57014':
      return new Away('the database did not finish a statement in time: nothing was written', about);
    case '53100':
      return new Away("the database's disk is full", { ...about, retryAfterSeconds: DISK_RETRY_SECONDS });
    case '53200':
    case '53400':
      return new Away('the database has no room for this now', { ...about, retryAfterSeconds: DISK_RETRY_SECONDS });
    default:
      return error;
  }
}

export function away(cause: unknown): ServiceError {
  return new Away('the database cannot be reached', { cause, retryAfterSeconds: 1 });
}

/** Creates the error for a change or commit without an answer. */
export function lost(cause: unknown): ServiceError {
  return new Away('the connection to the database was lost before it confirmed a write: it may be there or not', {
    cause,
    retryAfterSeconds: 1,
  });
}

/** Returns the reason for the log and the readiness check: messages of `pg` contain no password. */
export function reasonOf(error: unknown): string {
  return messageOf(error) || 'it cannot be reached';
}

import { Away, messageOf, ServiceError } from '../core/error.ts';

/** What `pg` fails with when the server itself answered: SQLSTATE as `code`. */
interface ServerError extends Error {
  readonly code: string;
  readonly severity: string;
}

/** The server ends or begins, or is one that only reads, as after a failover: another connection may do better. */
const AWAY = new Set(['57P01', '57P02', '57P03', '57P05', '25006', '53300']);
/** Nothing of the statement was done, so that it may be tried again whatever it was. */
const REFUSED = new Set(['57P03', '25006', '53300']);
const SERIALIZATION_FAILURE = '40001';
const DEADLOCK = '40P01';
const DISK_RETRY_SECONDS = 5;

function isOfServer(error: unknown): error is ServerError {
  return error instanceof Error && 'severity' in error && 'code' in error;
}

function stateOf(error: unknown): string {
  return isOfServer(error) ? error.code : '';
}

/** Whether the connection is of no use any more: the server went, does not answer, or may not be written to. */
export function isAway(error: unknown): boolean {
  if (error instanceof ServiceError || error instanceof TypeError || !(error instanceof Error)) return false;
  // All other errors of `pg` itself are about the connection: an error of the socket, a reply that did not come.
  return !isOfServer(error) || AWAY.has(error.code) || error.code.startsWith('08');
}

/** Of those: the server refused before it did anything. */
export function isRefused(error: unknown): boolean {
  return REFUSED.has(stateOf(error));
}

/** Two transactions were in each other's way, and nothing of this one is there: the same again may succeed. */
export function isConflict(error: unknown): boolean {
  const state = stateOf(error);
  return state === SERIALIZATION_FAILURE || state === DEADLOCK;
}

/** What the database could not do now, as an error that a caller may read; everything else as it is. Nothing was written. */
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

/** The answer to a change, or to its commit, was lost. */
export function lost(cause: unknown): ServiceError {
  return new Away('the connection to the database was lost before it confirmed a write: it may be there or not', {
    cause,
    retryAfterSeconds: 1,
  });
}

/** For the log and the readiness: the messages of `pg` hold no password. */
export function reasonOf(error: unknown): string {
  return messageOf(error) || 'it cannot be reached';
}

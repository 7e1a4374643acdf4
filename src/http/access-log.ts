import { loggable, ServiceError } from '../core/error.ts';
import type { RequestHead } from './plain-request.ts';
import type { Route } from './route-config.ts';

/** The part of a pino logger that an entry uses. */
export interface EntryLog {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

/** The fields of a line. */
export interface LoggedRequest {
  readonly raw: Pick<RequestHead, 'url'>;
  readonly method: string;
  readonly route: Route;
  readonly traceId: string;
  readonly tenant: string;
  readonly failure: ServiceError | string | null;
}

export interface AccessLogOptions {
  readonly entry: string;
  readonly log: EntryLog;
  /** Requests that took at least this long are logged although they succeeded. */
  readonly slowMs: number;
}

/** Lines per second; under overload a line per refused call would cost more than the call. */
const MAX_LINES_PER_SECOND = 50;
const MAX_PATH_CHARS = 512;

/**
 * One line for each request that failed or was slow, with its trace id; successes are counted by the metrics only.
 * The query is left out: it may carry a token.
 */
export function createAccessLog({ entry, log, slowMs }: AccessLogOptions) {
  let second = 0;
  let lines = 0;
  let leftOut = 0;

  const mayWrite = (): boolean => {
    const now = Math.floor(Date.now() / 1000);
    if (now !== second) {
      if (leftOut > 0) log.warn({ entry, leftOut }, 'requests were not logged: too many failures in one second');
      second = now;
      lines = 0;
      leftOut = 0;
    }
    lines += 1;
    if (lines <= MAX_LINES_PER_SECOND) return true;
    leftOut += 1;
    return false;
  };

  return (request: LoggedRequest, status: number, elapsedMs: number): void => {
    const slow = elapsedMs >= slowMs && request.route.longLived !== true;
    const { failure } = request;
    // To tell a probe "not ready" is an answer, not a failure.
    const failed = status >= 400 && (request.route.access !== 'public' || failure !== null);
    if ((!failed && !slow) || !mayWrite()) return;
    const fields = {
      entry,
      traceId: request.traceId,
      tenant: request.tenant,
      method: request.method,
      path: (request.raw.url ?? '').split('?', 1)[0]?.slice(0, MAX_PATH_CHARS),
      status,
      ms: Math.round(elapsedMs),
      ...(failure === null ? {} : { reason: loggable(failure instanceof Error ? failure.message : failure) }),
      ...(failure instanceof ServiceError && failure.cause !== undefined ? { err: failure.cause } : {}),
    };
    if (status >= 500) log.error(fields, 'request failed');
    else if (status >= 400) log.info(fields, 'request refused');
    else log.warn(fields, 'request was slow');
  };
}

import { loggable, ServiceError } from '../core/error.ts';
import type { Log } from '../lib/log.ts';
import type { RequestHead } from './request.ts';
import type { Route } from './route-config.ts';

/** The fields of a log line. */
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
  readonly log: Log;
  /** Duration from which a successful request is logged. */
  readonly slowMs: number;
}

/** Log lines per second. Under overload, a line for each refused call would cost more than the call. */
const MAX_LINES_PER_SECOND = 50;
const MAX_PATH_CHARS = 512;
const CALLER_ERRORS: ReadonlySet<ServiceError['code']> = new Set(['not_found', 'failed_precondition']);

/**
 * Logs one line, with the trace id, for each request that failed or was slow. Successful requests appear in
 * the metrics only. The line omits the query, which may contain a token.
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
    // A "not ready" response to a probe is not a failure.
    const failed = status >= 400 && (request.route.access !== 'public' || failure !== null);
    // Clients check whether a resource exists before they upload it, so a 404 to GET or HEAD is not a
    // failure.
    const isLookUp = status === 404 && (request.method === 'GET' || request.method === 'HEAD');
    if ((!failed && !slow) || (isLookUp && !slow) || !mayWrite()) return;
    const isOfUser = failure instanceof ServiceError && failure.code === 'execution_failed';
    // The sandbox or port that a client names does not exist. The wire of E2B answers 502.
    const isOfCaller = status === 502 && failure instanceof ServiceError && CALLER_ERRORS.has(failure.code);
    const fields = {
      entry,
      traceId: request.traceId,
      tenant: request.tenant,
      method: request.method,
      path: (request.raw.url ?? '').split('?', 1)[0]?.slice(0, MAX_PATH_CHARS),
      status,
      ms: Math.round(elapsedMs),
      ...(failure === null ? {} : { reason: loggable(failure instanceof Error ? failure.message : failure) }),
      ...(status >= 500 && failure instanceof ServiceError && failure.cause !== undefined
        ? { err: failure.cause }
        : {}),
    };
    if (isOfUser) log.warn(fields, 'user code failed');
    else if (status >= 500 && !isOfCaller) log.error(fields, 'request failed');
    else if (status >= 400) log.info(fields, 'request refused');
    else log.warn(fields, 'request was slow');
  };
}

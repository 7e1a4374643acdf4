export interface RookeryErrorDetails {
  /** Status of the HTTP answer; 0 without an answer. */
  readonly status?: number;
  /** Error code from the answer's body (docs/reference/errors.md), otherwise the status. */
  readonly code?: number;
  /**
   * Code of the failure in user code (`X-Inner-Code`), where the answer of an agent has only 500 in `code`;
   * otherwise `code`.
   */
  readonly innerCode?: number | undefined;
  /** Trace id of the request, by which the service's log can be searched. */
  readonly traceId?: string | undefined;
  /** Advice of the service on how to correct the request (`X-Advice`). */
  readonly advice?: string | undefined;
  /** Seconds to wait before a retry, as the service demands (`Retry-After`). */
  readonly retryAfterSeconds?: number | undefined;
  /** JSON object of the answer, if the answer has one. */
  readonly body?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/**
 * Failure of any method of this client, except an abort by the caller's own `AbortSignal`. It has subclasses
 * such as `NotFound`. `name` is the same in all of them: use `instanceof`.
 */
export class RookeryError extends Error {
  override readonly name = 'RookeryError';
  readonly status: number;
  readonly code: number;
  readonly innerCode: number;
  readonly traceId: string | undefined;
  readonly advice: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly body: Readonly<Record<string, unknown>> | undefined;

  constructor(message: string, details: RookeryErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.status = details.status ?? 0;
    this.code = details.code ?? this.status;
    this.innerCode = details.innerCode ?? this.code;
    this.traceId = details.traceId;
    this.advice = details.advice;
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.body = details.body;
  }
}

/** Makes the error for a wrong argument of the caller. The client has sent nothing. */
export function usageError(message: string): RookeryError {
  return new RookeryError(message);
}

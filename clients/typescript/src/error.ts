export interface RookeryErrorDetails {
  /** Of the HTTP answer; 0: there was none. */
  readonly status?: number;
  /** Of the answer's body (docs/errors.md); else the status. */
  readonly code?: number;
  readonly traceId?: string | undefined;
  /** What the service says to do about it. */
  readonly advice?: string | undefined;
  /** After how many seconds the service wants to be asked again. */
  readonly retryAfterSeconds?: number | undefined;
  /** The answer's JSON object, where it was one. */
  readonly body?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/** Every failure of this client but for those of the caller's own `AbortSignal`. */
export class RookeryError extends Error {
  override readonly name = 'RookeryError';
  readonly status: number;
  readonly code: number;
  readonly traceId: string | undefined;
  readonly advice: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly body: Readonly<Record<string, unknown>> | undefined;

  constructor(message: string, details: RookeryErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.status = details.status ?? 0;
    this.code = details.code ?? this.status;
    this.traceId = details.traceId;
    this.advice = details.advice;
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.body = details.body;
  }
}

/** What the caller gave is wrong: nothing was sent. */
export function usageError(message: string): RookeryError {
  return new RookeryError(message);
}

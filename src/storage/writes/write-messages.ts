import { type ErrorCode, type ErrorDetails, ServiceError } from '../../core/error.ts';

/**
 * Messages between the service and its write thread. One message carries everything from one turn of an event
 * loop, since a message costs as much as many of its parts.
 */
export interface ToThread {
  readonly orders: readonly Order[];
  /** The last message: the thread ends after its orders. */
  readonly isLast: boolean;
}

/** `[id, name of a write operation, its arguments]`, or `[id, null, a query as text, its parameters]`. */
export type Order =
  | readonly [id: number, operation: string, args: readonly unknown[]]
  | readonly [id: number, operation: null, sql: string, parameters: readonly unknown[]];

export interface FromThread {
  readonly outcomes: readonly SentOutcome[];
  /** `DurableWrites.problem` */
  readonly problem: string | null;
}

/** `[id, result]`, or `[id, null, error]`. */
export type SentOutcome =
  | readonly [id: number, result: unknown]
  | readonly [id: number, result: null, error: SentError];

/** An error as plain data. A `ServiceError` is sent by its parts; other errors keep message and stack. */
export type SentError =
  | { readonly code: ErrorCode; readonly message: string; readonly details: ErrorDetails }
  | { readonly unknown: Error };

/** Converts an error for another thread, with its code and fields. */
export function sendError(error: unknown): SentError {
  if (error instanceof ServiceError) {
    const { code, message, retryAfterSeconds, advice, body, number, cause } = error;
    const details = {
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      ...(advice === undefined ? {} : { advice }),
      ...(body === undefined ? {} : { body }),
      ...(number === undefined ? {} : { number }),
      ...(cause === undefined ? {} : { cause: plain(cause) }),
    };
    return { code, message, details };
  }
  return { unknown: plain(error) };
}

/** Restores an error that another thread has sent. */
export function receiveError(sent: SentError): Error {
  return 'unknown' in sent ? sent.unknown : new ServiceError(sent.code, sent.message, sent.details);
}

/** Copies message and stack only, since other members may not be cloneable. */
function plain(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  const copy = new Error(error.message);
  if (error.stack !== undefined) copy.stack = error.stack;
  return copy;
}

import { USER_CODES } from '../core/codes.ts';
import { deadlineExceeded, type ServiceError, unavailable } from '../core/error.ts';
import { within } from '../lib/deadline.ts';
import { isJson } from '../lib/json-bytes.ts';
import { MAX_TIMER_MS } from '../lib/long-timer.ts';
import type { CallError, CallHeader, InitOk } from './protocol.ts';

/**
 * The signal of a call: an `AbortSignal`, or something lighter that behaves alike. One that can be interrupted tells its listeners of that
 * too, as often as it is, with the reason `interrupt`, and is not `aborted` by it.
 */
export interface CallSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

export interface Call {
  readonly header: Omit<CallHeader, 'remainingMs' | 'atMs'>;
  /** The event as the caller sent it: JSON, checked by whoever took it from the caller. */
  readonly body: Buffer;
  /** Bound of the whole call, waiting included, milliseconds. At its end the call is cancelled. */
  readonly timeoutMs: number;
  /** What of `timeoutMs` had passed when the call came here, whole milliseconds. Absent: nothing. */
  readonly waitedMs?: number;
  /** The caller going away: the call is given up. Or an interrupt (`signal.reason === 'interrupt'`): its code is told, and its answer waited for. */
  readonly signal?: CallSignal | undefined;
  /** Makes it a stream: one event each. Grant more with `Channel.credit` as the reader takes them. */
  readonly onChunk?: ((event: Buffer, callId: number) => void) | undefined;
  /** Told when a call that was given up has ended inside after all, or its connection has: its slot there is free again. */
  readonly onLateEnd?: () => void;
}

/** The same call, which has waited since then (`performance.now()`). */
export function waitedSince(sinceMs: number, call: Call): Call {
  return { ...call, waitedMs: (call.waitedMs ?? 0) + Math.round(performance.now() - sinceMs) };
}

export function timedOut({ timeoutMs }: Pick<Call, 'timeoutMs'>): ServiceError {
  return deadlineExceeded(`timed out after ${timeoutMs / 1000} s`);
}

/** `promise`, unless the time of the call ends first, or its caller goes away: then it fails as a call does. What was waited for goes on. */
export async function withinTimeOf<T>(call: Call, promise: Promise<T>): Promise<T> {
  const { timeoutMs, waitedMs = 0, signal } = call;
  let leave: (() => void) | undefined;
  const left = new Promise<never>((_, reject) => {
    leave = () => reject(unavailable('the caller went away'));
    if (signal?.aborted) leave();
    else signal?.addEventListener('abort', leave);
  });
  try {
    const leftMs = Math.min(timeoutMs - waitedMs, MAX_TIMER_MS);
    return await within(Promise.race([promise, left]), leftMs, () => timedOut(call));
  } finally {
    if (leave !== undefined) signal?.removeEventListener('abort', leave);
  }
}

/** CHUNK bytes that a stream may send before its reader has taken any. */
export const STREAM_CREDIT_BYTES = 256 * 1024;

/** The outcome of the user's code. Failures of the platform reject instead. */
export type CallOutcome =
  | {
      readonly ok: true /** JSON bytes; who does more than pass them on asks `checkedOutcome`. */;
      readonly data: Buffer;
      readonly runMicros: number;
    }
  | { readonly ok: false; readonly code: number; readonly text: string; readonly runMicros: number };

/** Results up to here are checked to be JSON. Of larger ones it is only proven that they cannot end the field they stand in: that costs a third and less. */
export const CHECKED_BYTES = 4096;

/** The outcome for who reads its value, or keeps it for readers to come: also a large value is JSON then, or the call has failed. */
export function checkedOutcome(outcome: CallOutcome): CallOutcome {
  if (!outcome.ok || outcome.data.length <= CHECKED_BYTES || isJson(outcome.data)) return outcome;
  return notJson(outcome.runMicros);
}

export function notJson(runMicros: number): CallOutcome {
  const { code } = USER_CODES.resultNotJson;
  return { ok: false, code, text: 'the value that the runtime answered with is not JSON', runMicros };
}

export type InitOutcome =
  /** `beganMs`: when the loading began, as `performance.now` has it; absent where that is not known. */
  | { readonly ok: true; readonly timing: InitOk; readonly beganMs?: number }
  | { readonly ok: false; readonly error: CallError };

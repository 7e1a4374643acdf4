import type { AlarmChange } from '../core/alarm.ts';
import { USER_CODES } from '../core/codes.ts';
import { deadlineExceeded, type ServiceError, unavailable } from '../core/error.ts';
import type { CallSignal } from '../lib/call-signal.ts';
import { MAX_TIMER_MS, within } from '../lib/deadline.ts';
import { exceededBound, isJson } from '../lib/json-bytes.ts';
import type { CallError, CallHeader, InitOk } from './protocol.ts';

export interface Call {
  readonly header: Omit<CallHeader, 'remainingMs' | 'atMs'>;
  /** The event as the client sent it: JSON, checked by the component that received it. */
  readonly body: Buffer;
  /** Limit of the whole call in milliseconds, including waits. At its end the call is cancelled. */
  readonly timeoutMs: number;
  /** The part of `timeoutMs` that had passed before this call, in whole milliseconds. Absent: none. */
  readonly waitedMs?: number;
  /** Returns the changes of alarms to save with the call if it succeeds. Only of an alarm's call. */
  readonly settles?: () => readonly AlarmChange[];
  /** False: a sleeping agent stays asleep, and the call fails. Absent: the call wakes it. */
  readonly mayWake?: boolean;
  /**
   * Aborts when the client disconnects: the call is abandoned.
   * An interrupt (`signal.reason === 'interrupt'`) is sent to the code instead, and its answer is awaited.
   */
  readonly signal?: CallSignal | undefined;
  /**
   * Makes the call a stream and receives its events one by one. `Channel.credit` grants more when the reader
   * takes them.
   */
  readonly onChunk?: ((event: Buffer, callId: number) => void) | undefined;
  /**
   * Called when an abandoned call has ended inside after all, or its connection has: its slot is free then.
   */
  readonly onLateEnd?: () => void;
}

/** Returns the same call with the time since `sinceMs` (`performance.now()`) added to its waiting time. */
export function waitedSince(sinceMs: number, call: Call): Call {
  return { ...call, waitedMs: (call.waitedMs ?? 0) + Math.round(performance.now() - sinceMs) };
}

export function timedOut({ timeoutMs }: Pick<Call, 'timeoutMs'>): ServiceError {
  return deadlineExceeded(`timed out after ${timeoutMs / 1000} s`);
}

/**
 * Awaits `promise` within the call's time. Fails like a call at the timeout, or when the client disconnects.
 * The awaited work continues.
 */
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

/**
 * The outcome of the user's code. Failures of the platform reject instead. `spans`: unchecked JSON of a SPANS
 * frame, for `readCallSpans`.
 */
export type CallOutcome =
  | {
      readonly ok: true /** JSON bytes; call `checkedOutcome` before parsing or storing them. */;
      readonly data: Buffer;
      readonly runMicros: number;
      readonly spans?: Buffer;
    }
  | {
      readonly ok: false;
      readonly code: number;
      readonly text: string;
      readonly runMicros: number;
      readonly spans?: Buffer;
    };

/**
 * Size up to which results are checked to be JSON.
 * A larger result is only checked to stay inside the field that contains it, which costs at most a third.
 */
export const CHECKED_BYTES = 4096;

/**
 * Checks that a large value is JSON too, for callers that parse or store it.
 * Returns a failed outcome when the value is not JSON.
 */
export function checkedOutcome(outcome: CallOutcome): CallOutcome {
  if (!outcome.ok || outcome.data.length <= CHECKED_BYTES || isJson(outcome.data)) return outcome;
  return notJson(outcome.data, outcome.runMicros);
}

/** Returns the outcome of a result that is not JSON, or exceeds one of its limits. */
export function notJson(data: Uint8Array, runMicros: number): CallOutcome {
  const { code } = USER_CODES.resultNotJson;
  const bound = exceededBound(data);
  const text =
    bound === undefined
      ? 'the value that the runtime answered with is not JSON'
      : `the returned value cannot be turned into JSON: it ${bound}`;
  return { ok: false, code, text, runMicros };
}

export type InitOutcome =
  /** `beganMs`: start of the loading in the time of `performance.now`; absent when unknown. */
  | { readonly ok: true; readonly timing: InitOk; readonly beganMs?: number }
  | { readonly ok: false; readonly error: CallError };

/** Saves the state of one durable agent. */
export interface StateSaver {
  /** Number of saves that the saver has accepted since the agent was created. */
  readonly version: number;
  /** Resolves when every save that was accepted is on disk; undefined: all are. */
  readonly pending: Promise<void> | undefined;
  /**
   * Saves a document (null: it has not changed) with changes of alarms. Resolves when all is on disk. Rejects
   * with `StateUnsaved` if it could not be saved; the agent is reset then.
   */
  save(state: string | null, alarms: readonly AlarmChange[]): Promise<void>;
  /** Returns the alarms of the agent with these unsaved changes, as the JSON of a list. */
  listAlarms(changes: readonly AlarmChange[]): Promise<string>;
  /** Keeps the agent awake for this long from now. Replaces the time that was given before. */
  keepAwake(seconds: number): void;
  /** Records that a call has succeeded. */
  succeeded(): void;
  /** Ends the sandbox, whose state is another than the saved one. */
  reset(why: string): void;
}

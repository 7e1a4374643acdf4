import type { CallError, CallHeader, InitOk } from './protocol.ts';

/** The signal of a call: an `AbortSignal`, or something lighter that behaves alike. */
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
  /** What of `timeoutMs` had passed when the call came here, whole milliseconds; less than it. Absent: nothing. */
  readonly waitedMs?: number;
  /** The caller going away, or an interrupt (`signal.reason === 'interrupt'`): the call is cancelled. */
  readonly signal?: CallSignal | undefined;
  /** Makes it a stream: one event each. Grant more with `Channel.credit` as the reader takes them. */
  readonly onChunk?: ((event: Buffer, callId: number) => void) | undefined;
  /** Told when a call that was given up has ended inside after all, or its connection has: its slot there is free again. */
  readonly onLateEnd?: () => void;
}

/** CHUNK bytes that a stream may send before its reader has taken any. */
export const STREAM_CREDIT_BYTES = 256 * 1024;

/** The outcome of the user's code. Failures of the platform reject instead. */
export type CallOutcome =
  | { readonly ok: true /** JSON bytes. */; readonly data: Buffer; readonly runMicros: number }
  | { readonly ok: false; readonly code: number; readonly text: string; readonly runMicros: number };

export type InitOutcome =
  | { readonly ok: true; readonly timing: InitOk }
  | { readonly ok: false; readonly error: CallError };

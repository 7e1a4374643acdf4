/** Durations of a call's stages, milliseconds. */
export interface CallStages {
  readonly queueMs: number;
  readonly placeMs: number;
  readonly startMs: number;
  readonly loadMs: number;
  readonly runMs: number;
}

/** Kinds of calls. */
export const CALL_MODES = ['sync', 'stream', 'async', 'lambda', 'alarm'] as const;
export type CallMode = (typeof CALL_MODES)[number];

/** The facts about the request of a call. */
export interface CallOrigin {
  readonly mode: CallMode;
  /** The name of the token that made the call, or `alarm <name>`; `''`: none. */
  readonly caller: string;
  /** The value of the request's `traceparent`, which names the call that made this one. */
  readonly traceparent: string | undefined;
}

/**
 * A call that has ended. One object of references, because it is made on the path of the call: nothing is
 * copied, parsed or encoded for it there.
 */
export interface FinishedCall extends CallOrigin {
  /** The request id, which the handler sees too. */
  readonly id: string;
  readonly traceId: string;
  readonly tenant: string;
  readonly kind: 'agent' | 'function';
  /** The id of the agent, or the URN of the function's version. */
  readonly target: string;
  /** `''` when the call got no instance. */
  readonly instanceId: string;
  readonly endedAtMs: number;
  readonly elapsedMs: number;
  /** Null when the call did not run. */
  readonly stages: CallStages | null;
  /** `ok`, the number of a failure, or an error code of the service. */
  readonly code: string;
  readonly input: Buffer;
  /** Null for a failure. */
  readonly output: Buffer | null;
  /** JSON of the spans of its handler's code, as the runtime sent them. Absent: none. */
  readonly spans?: Buffer | undefined;
  /** Lengths of the whole input and output. Absent: `input` and `output` are whole. */
  readonly wholeBytes?: { readonly input: number; readonly output: number };
  /** True if a recording of all calls includes it, so that more of its input and output is kept. */
  readonly isRecorded?: boolean;
  /** The text of a failure; `''` for a success. */
  readonly error: string;
}

/** Keeps calls that have ended. Both methods are called on the path of a call, and never throw. */
export interface CallSink {
  /** Returns true when a call is to be kept. `target`: as in `FinishedCall`. */
  wants(target: string, isOk: boolean, elapsedMs: number): boolean;
  push(call: FinishedCall): void;
}

/** Keeps nothing. */
export const NO_CALLS_KEPT: CallSink = { wants: () => false, push: () => undefined };

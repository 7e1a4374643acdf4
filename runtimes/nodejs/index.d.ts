/** Types of what handlers get. Import them as types: inside an instance nothing has to be installed. */

/** A function of the code: `event` is the parsed JSON of the call, the value is the answer. */
// biome-ignore lint/suspicious/noExplicitAny: who says nothing of the event wants to read it.
export type Handler<Event = any, Result = unknown> = (
  event: Event,
  context: Context,
) => Result | Promise<Result> | Generator<unknown, Result> | AsyncGenerator<unknown, Result>;

/** `extendedHandler.initializer`: runs once, before the first call. */
export type Initializer = (context: Context) => unknown;

/** `extendedHandler.pre_stop`: runs once, at the end, when no call runs. */
export type PreStop = (context: Context) => unknown;

export interface Context {
  /** Identifies the request that this call belongs to, in every log. */
  readonly traceId: string;
  /** W3C trace context: the caller's trace, a span of this call's own. Pass it on as it is. */
  readonly traceparent: string;
  readonly requestId: string;
  /** `''` without a session. */
  readonly sessionId: string;
  /** The call's own headers that the platform does not own, names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly instanceId: string;
  readonly tenant: string;
  readonly namespace: string;
  readonly name: string;
  /** `''` for an agent that was made without a function. */
  readonly functionName: string;
  readonly version: string;
  /** The service in the function's name, else the namespace. */
  readonly package: string;
  readonly memoryMb: number;
  /** Thousandths of a core. */
  readonly cpuMillis: number;
  /** When the call ends, as `Date.now()` would say it; undefined without a bound. */
  readonly deadline: number | undefined;
  /** Milliseconds until then, at least 0. */
  remainingMs(): number | undefined;
  /** Aborted when the call times out, is interrupted or has lost its caller; `reason` is a `CallCancelled`. Pass it on to what waits. */
  readonly signal: AbortSignal;
  /** Lives as long as the instance: the same object in every call. */
  // biome-ignore lint/suspicious/noExplicitAny: it is the user's own.
  readonly state: Record<string, any>;
  /** Lines in the instance's log, with the trace id. */
  readonly logger: Logger;
  /** A variable of the environment. */
  env(key: string): string | undefined;
  env(key: string, otherwise: string): string;
  /** The call's stream; fails when the caller does not take one. */
  getStream(): Stream;
}

export interface Logger {
  debug(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

export interface Stream {
  /**
   * Sends one event: a text as it is, another value as JSON, null and undefined nothing. Wait for it: it resolves when the reader has room for more, and
   * fails with `CallCancelled` when the call was cancelled.
   */
  write(event: unknown): Promise<void>;
}

/** `signal.reason` of a call that was cancelled; outside of an instance for `instanceof`, inside its `name` is `CallCancelled`. */
export declare class CallCancelled extends Error {}

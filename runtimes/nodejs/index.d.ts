/**
 * Types of the parameters of handlers. Import them with `import type`: inside an instance nothing has to be
 * installed.
 */

/** A function of the code. `event` is the parsed JSON of the call; the returned value is the answer. */
// biome-ignore lint/suspicious/noExplicitAny: handlers may read an event without a type.
export type Handler<Event = any, Result = unknown> = (
  event: Event,
  context: Context,
) => Result | Promise<Result> | Generator<unknown, Result> | AsyncGenerator<unknown, Result>;

/** `extendedHandler.initializer`: runs once, before the first call. A failure fails every call. */
export type Initializer = (context: Context) => unknown;

/** `extendedHandler.pre_stop`: runs once when the instance stops, after the last call. */
export type PreStop = (context: Context) => unknown;

/** `extendedHandler.sleep`: runs before a durable agent falls asleep, at most 5 s. Its changes are saved. */
export type Sleep = (context: Context) => unknown;

/** An alarm to set: exactly one of `at`, `after`, `every` and `cron`. */
export interface Alarm {
  /** Once: a Date, milliseconds since the epoch, or a text of RFC 3339. */
  readonly at?: Date | number | string;
  /** Once, after this many seconds. */
  readonly after?: number;
  /** Again and again, after this many seconds, at least 5. */
  readonly every?: number;
  /** Again and again, at the times of five fields of cron. */
  readonly cron?: string;
  /** The zone of `cron`; default: UTC. */
  readonly tz?: string;
  /** Value that the agent gets: JSON of at most 16 KiB. */
  readonly payload?: unknown;
  /** Delay in seconds after which the alarm is dropped. */
  readonly maxLateSeconds?: number;
}

/** An alarm that is set. Times are in RFC 3339. */
export interface SetAlarm {
  readonly name: string;
  readonly id: string;
  /** The next regular time. */
  readonly at: string;
  /** Seconds. */
  readonly every?: number;
  readonly cron?: string;
  readonly tz?: string;
  readonly max_late_seconds?: number;
  readonly payload: unknown;
  /** Failed deliveries of this time. */
  readonly attempts: number;
  /** Time of the next attempt after a failed one. */
  readonly retry_at?: string;
  readonly missed: number;
  /** True once all attempts have failed. */
  readonly failed: boolean;
  readonly last_error?: string;
}

/** The first parameter of `extendedHandler.alarm`. Without that entry the handler gets `{alarm}`. */
export interface AlarmEvent<Payload = unknown> {
  readonly name: string;
  /** Stays the same over retries. */
  readonly id: string;
  readonly payload: Payload;
  readonly scheduled_at: string;
  readonly fired_at: string;
  /** Counts deliveries, from 1. */
  readonly attempt: number;
  /** Earlier regular times that were not delivered. */
  readonly missed: number;
}

/** The `context` parameter of handlers and hooks. */
export interface Context {
  /** Id of the request that this call belongs to, in every log. */
  readonly traceId: string;
  /** W3C trace context with the caller's trace id and a span id of this call. Pass it on unchanged. */
  readonly traceparent: string;
  /** Id of this call. */
  readonly requestId: string;
  /** Id of the call's session; `''` without a session. */
  readonly sessionId: string;
  /** Headers of the call that the platform does not use itself, with names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** UUID of the instance. */
  readonly instanceId: string;
  /** Tenant that owns the instance. */
  readonly tenant: string;
  /** Namespace of the instance. */
  readonly namespace: string;
  /** Name of the instance. */
  readonly name: string;
  /** Name of the registered function; `''` for an agent that was created without a function. */
  readonly functionName: string;
  /** Version of the function; `''` without a function. */
  readonly version: string;
  /**
   * The service in the function's name (`0@service@function`), or the namespace if the name has no service.
   */
  readonly package: string;
  /** Memory of the instance in megabytes. */
  readonly memoryMb: number;
  /** CPU share of the instance in thousandths of a core. */
  readonly cpuMillis: number;
  /**
   * Time at which the call is cancelled, in milliseconds since the epoch as `Date.now()`; undefined without a
   * limit.
   */
  readonly deadline: number | undefined;
  /** Returns the milliseconds until the deadline, at least 0; undefined without a limit. */
  remainingMs(): number | undefined;
  /**
   * Aborted when the call times out or is interrupted, when its caller disconnects, or when the instance
   * stops. `reason` is a `CallCancelled`. Pass the signal on to asynchronous operations.
   */
  readonly signal: AbortSignal;
  /**
   * An object that all calls share. It exists as long as the instance. That of a durable agent is saved
   * before a call is answered, and it survives restarts; a call that fails leaves it as it was.
   */
  // biome-ignore lint/suspicious/noExplicitAny: its type is that of the user's code.
  readonly state: Record<string, any>;
  /**
   * Saves `state` now. Resolves when it is on disk. What is saved so stays if the call fails later. Rejects
   * if the agent is not durable.
   */
  save(): Promise<void>;
  /**
   * Calls the agent later, also if it sleeps then. The same name replaces an alarm that is set. The alarm is
   * saved with the call, so a call that fails sets none. Throws if the alarm is wrong, or the agent is not
   * durable.
   */
  setAlarm(name: string, alarm: Alarm): void;
  /**
   * Keeps the agent awake until `promise` ends, for `seconds` at most: 1 to 3600, 300 by default. Resolves or
   * rejects as `promise` does.
   */
  keepAwake<T>(promise: Promise<T>, seconds?: number): Promise<T>;
  /** Cancels an alarm, with the save of the call. Without effect if there is none of this name. */
  cancelAlarm(name: string): void;
  /**
   * Returns the alarms of this agent, by name, with what this call has set and cancelled. Rejects if an alarm
   * that the call has set is wrong, or the agent is not durable.
   */
  alarms(): Promise<readonly SetAlarm[]>;
  /** True in the initializer and in the first call after a start with a saved state. */
  readonly isWaking: boolean;
  /** Why the agent was started last; undefined for an agent that is not durable. */
  readonly wake: Wake | undefined;
  /** Writes lines to the instance's log (stderr), with the trace id. */
  readonly logger: Logger;
  /** Returns an environment variable, or `otherwise` if it is not set. */
  env(key: string): string | undefined;
  env(key: string, otherwise: string): string;
  /**
   * Calls `work` with a span, a named part of this call in the history of calls. Returns its result. The span
   * ends with the result; an error marks it as failed. Above 128 spans `work` runs without one.
   */
  span<Result>(name: string, work: (span: Span) => Result): Result;
  span<Result>(name: string, attributes: SpanAttributes, work: (span: Span) => Result): Result;
  /** Returns the call's stream. Throws if the caller did not request text/event-stream. */
  getStream(): Stream;
}

/** Values of other types become texts; null and undefined are left out. */
export type SpanAttributes = Readonly<Record<string, unknown>>;

export interface Span {
  /** Sets an attribute. */
  set(name: string, value: unknown): void;
}

/** The last start of a durable agent. Times are in RFC 3339; null: never. */
export interface Wake {
  readonly reason: string;
  /** Number of starts with a saved state. */
  readonly count: number;
  readonly slept_at: string | null;
  readonly saved_at: string | null;
  readonly state_version: number;
}

export interface Logger {
  debug(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

export interface Stream {
  /**
   * Sends one event: a string as it is, another value as JSON; null and undefined send nothing.
   *
   * Await the promise. It resolves when the reader accepts more events. It rejects with `CallCancelled` when
   * the call was cancelled, and with an error if the value is not JSON, has more than about 7 MiB, or the
   * call has been answered.
   */
  write(event: unknown): Promise<void>;
}

/**
 * `signal.reason` of a cancelled call. Outside an instance use `instanceof`; inside, its `name` is
 * `CallCancelled`.
 */
export declare class CallCancelled extends Error {}

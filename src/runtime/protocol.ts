import type { DurableEntries } from '../core/durable.ts';

/**
 * Wire types of the runtime protocol, version 1, between the service and the runtime inside a sandbox.
 * The document is `docs/reference/runtime-protocol.md`; the runtimes of all languages under `runtimes/`
 * implement it.
 *
 * Frame: u32 length (of the bytes after it) · u8 type · u32 call id · payload. Big-endian. Call id 0 = the
 * connection.
 */
export const PROTOCOL_VERSION = 1;

/** The text of the ERROR 4000 with which a stopping runtime refuses a CALL. */
export const STOPPING = 'the instance is stopping';

export const FRAME = {
  /** → JSON `Hello`. First frame of every connection. */
  HELLO: 1,
  /** ← JSON `HelloOk`. */
  HELLO_OK: 2,
  /** → JSON `Init`. Data connection, once; a repetition gets the stored outcome. */
  INIT: 3,
  /** ← JSON `InitOk`; a failure is ERROR with call id 0. */
  INIT_OK: 4,
  /** → u16 header length · JSON `CallHeader` · body bytes. */
  CALL: 5,
  /** ← u32 microseconds in the handler · JSON bytes of the value. */
  RESULT: 6,
  /** ← one event of a stream, UTF-8 text. */
  CHUNK: 7,
  /** ← JSON `CallError`. */
  ERROR: 8,
  /** → JSON `Cancel`. Control connection; the call id is from the same client's data connection. */
  CANCEL: 9,
  /**
   * → u32: bytes of CHUNK payload that this call may send in addition to earlier grants. Control connection.
   */
  CREDIT: 10,
  /** → empty. Control connection. */
  PING: 11,
  /** ← JSON `Pong`. */
  PONG: 12,
  /** → JSON `Stop`. Control connection; also over the data connection of a runtime that `stopsOverData`. */
  STOP: 13,
  /** ← JSON `Stopped`; then the runtime exits with 0. */
  STOPPED: 14,
  /**
   * ← u8 flags (0) · u32 length of the alarms · JSON of the alarms · JSON of the state. Data connection of a
   * durable agent. Sent directly before the RESULT of the call that changed one of them; call id 0:
   * `context.save()`.
   */
  SAVE: 15,
  /** → JSON `{version}`. Control connection. Answers SAVEs with call id 0 in order, once on disk. */
  SAVED: 16,
  /**
   * ← JSON of the call's spans (`core/call-spans.ts`). Data connection of a client whose HELLO has `spans`;
   * before the RESULT or ERROR of the call.
   */
  SPANS: 17,
  /**
   * ← u32: seconds from now during which a durable agent stays awake; replaces the earlier ones. Data
   * connection.
   */
  KEEP_AWAKE: 18,
  /**
   * ← JSON of the unsaved changes of alarms, as a SAVE has them; `[]`: none. Data connection of a durable
   * agent whose INIT has `listsAlarms`.
   */
  ALARMS: 19,
  /** → JSON `AlarmList`. Control connection. Answers the ALARMS in order. */
  ALARM_LIST: 20,
} as const;

export interface Hello {
  version: number;
  secret: string;
  /** Id that links the data and the control connection of the same service process. */
  client: string;
  role: 'data' | 'control';
  /** 1: the client accepts SPANS. */
  spans?: number;
}

export interface HelloOk {
  version: number;
  /** Name and version, for example `python3.11.7`. */
  runtime: string;
  /** Name and version, for example `rookery-runtime/0.1.0`. */
  sdk: string;
  state: 'new' | 'initializing' | 'ready' | 'failed' | 'stopping';
  /**
   * True when the runtime accepts STOP over the data connection too.
   * It then detects the end of a client without a control connection.
   */
  stopsOverData?: boolean;
  /** Present when the runtime understands `Init.durable`, SAVE and SAVED. */
  durable?: number;
  /** Number of SAVEs of a durable agent, including those of its earlier sandboxes. */
  stateVersion?: number;
  /** Present while code keeps a durable agent awake: seconds from now. */
  keepAwakeSeconds?: number;
  /** The reason the code could not be loaded (state `failed`). */
  error?: CallError;
}

export interface Init {
  codePath: string;
  handler: string;
  initializer: string;
  preStop: string;
  initTimeoutMs: number;
  /** Maximum number of calls that run at once, 1 to 1000. */
  concurrency: number;
  /** Maximum number of bytes of a result; above it ERROR 4004. */
  maxResultBytes: number;
  instanceId: string;
  tenant: string;
  namespace: string;
  name: string;
  functionName: string;
  version: string;
  memoryMb: number;
  cpuMillis: number;
  /** Present for a durable agent. */
  durable?: InitDurable;
}

/** The saved state with which a durable agent starts. */
export interface InitDurable {
  /** JSON text of the document; null: none was saved. */
  state: string | null;
  /** Number of saves so far. */
  version: number;
  /** Shape of the state that the code expects. */
  schema: number;
  /** Maximum number of bytes of a state; above it ERROR 4004. */
  maxStateBytes: number;
  wake: Wake;
  /** True: the client answers ALARMS. */
  listsAlarms: boolean;
  /** Functions that run instead of the handler, by `CallHeader.entry`. */
  entries?: DurableEntries;
}

/** The alarms of a durable agent with its unsaved changes, or why there is no list. */
export type AlarmList =
  /** Each as `alarmJson` of `core/alarm.ts` returns it. */
  { alarms: unknown[] } | { error: string };

/** The reason of a start, for `context.wake`. */
export interface Wake {
  reason: WakeReason;
  /** Number of starts before this one. */
  count: number;
  /** RFC 3339; null: it never slept. */
  slept_at: string | null;
  /** RFC 3339; null: nothing was saved. */
  saved_at: string | null;
  state_version: number;
}

export type WakeReason = 'created' | 'request' | 'crash' | 'call' | 'alarm' | 'exec' | 'access';

export interface InitOk {
  /** Duration of loading the module. */
  loadMicros: number;
  /** Duration of the initializer. */
  initMicros: number;
  /** Start of the loading, by the monotonic clock of the runtime's machine. Absent: not reported. */
  beganMicros?: number;
}

export interface CallHeader {
  traceId: string;
  traceparent: string;
  requestId: string;
  /** Time that is left when the frame is written. 0 = no limit. */
  remainingMs: number;
  /**
   * Time of the write, by the machine's monotonic clock (ms). Not sent to another machine.
   * With it, a runtime that reads late can compute how long a call has waited.
   */
  atMs?: number;
  sessionId?: string;
  /** The function of a durable agent that runs instead of its handler. */
  entry?: keyof DurableEntries;
  /** True: CHUNKs may precede RESULT, and `get_stream()` works. */
  stream?: boolean;
  /** Bytes of CHUNK payload that may be sent before the first CREDIT (streams only). */
  credit?: number;
  /** The call's own headers that the platform does not own. */
  headers?: Record<string, string>;
}

export interface CallError {
  /** Error code, Decisions §8: 4001, 4002, 4004, 4007, 4009, 4010, 4140, 4201, 4211. */
  code: number;
  message: string;
  /** Time in the handler, if it ran. */
  runMicros?: number;
}

export interface Cancel {
  reason: 'timeout' | 'caller' | 'interrupt';
}

export interface Pong {
  running: number;
  queued: number;
}

export interface Stop {
  /** Time limit of pre_stop. */
  graceMs: number;
}

export interface Stopped {
  /** Present when pre_stop failed (4009). */
  error?: CallError;
}

/** Size of the length prefix, type and call id. */
export const FRAME_HEADER_BYTES = 9;

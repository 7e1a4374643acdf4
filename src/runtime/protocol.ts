/**
 * Wire types of the runtime protocol, version 1: what the control plane and the runtime inside a sandbox say to each
 * other. The document is `docs/runtime-protocol.md`; the languages' runtimes under `runtimes/` implement it.
 *
 * Frame: u32 length (of what follows it) · u8 type · u32 call id · payload. Big-endian. Call id 0 = the connection.
 */
export const PROTOCOL_VERSION = 1;

export const FRAME = {
  /** → JSON `Hello`. First frame of every connection. */
  HELLO: 1,
  /** ← JSON `HelloOk`. */
  HELLO_OK: 2,
  /** → JSON `Init`. Data connection, once; again = the stored outcome. */
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
  /** → JSON `Cancel`. Control connection; the call id is one of the same client's data connection. */
  CANCEL: 9,
  /** → u32: bytes of CHUNK payload that this call may send beyond what it was granted before. Control connection. */
  CREDIT: 10,
  /** → empty. Control connection. */
  PING: 11,
  /** ← JSON `Pong`. */
  PONG: 12,
  /** → JSON `Stop`. Control connection; also over the data connection of a runtime that `stopsOverData`. */
  STOP: 13,
  /** ← JSON `Stopped`; then the runtime exits with 0. */
  STOPPED: 14,
} as const;

export interface Hello {
  version: number;
  secret: string;
  /** Ties the data and the control connection of one control plane together. */
  client: string;
  role: 'data' | 'control';
}

export interface HelloOk {
  version: number;
  /** `python3.11.7` */
  runtime: string;
  /** `rookery-runtime/0.1.0` */
  sdk: string;
  state: 'new' | 'initializing' | 'ready' | 'failed' | 'stopping';
  /** It takes STOP over the data connection too, and needs no control connection to see that a client has gone. */
  stopsOverData?: boolean;
  /** Why the code could not be loaded (state `failed`). */
  error?: CallError;
}

export interface Init {
  codePath: string;
  handler: string;
  initializer: string;
  preStop: string;
  initTimeoutMs: number;
  /** How many calls run at once, 1 to 1000. */
  concurrency: number;
  /** Bytes of a result; above it ERROR 4004. */
  maxResultBytes: number;
  instanceId: string;
  tenant: string;
  namespace: string;
  name: string;
  functionName: string;
  version: string;
  memoryMb: number;
  cpuMillis: number;
}

export interface InitOk {
  /** Loading the module. */
  loadMicros: number;
  /** The initializer. */
  initMicros: number;
  /** When the loading began, by the monotonic clock of the runtime's machine. Absent: it does not say. */
  beganMicros?: number;
}

export interface CallHeader {
  traceId: string;
  traceparent: string;
  requestId: string;
  /** Time that is left when the frame is written. 0 = no bound. */
  remainingMs: number;
  /** When that was, by the monotonic clock of the machine (ms): a runtime that reads late knows how long a call has waited. Not to another machine. */
  atMs?: number;
  sessionId?: string;
  /** True: CHUNKs may come before RESULT; `get_stream()` works. */
  stream?: boolean;
  /** Bytes of CHUNK payload that may be sent before the first CREDIT (streams only). */
  credit?: number;
  /** The call's own headers that the platform does not own. */
  headers?: Record<string, string>;
}

export interface CallError {
  /** Decisions §8: 4001, 4002, 4004, 4007, 4009, 4010, 4140, 4201, 4211. */
  code: number;
  message: string;
  /** Time in the handler, when it ran. */
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
  /** Bound of pre_stop. */
  graceMs: number;
}

export interface Stopped {
  /** pre_stop failed (4009). */
  error?: CallError;
}

/** Length prefix, type and call id. */
export const FRAME_HEADER_BYTES = 9;

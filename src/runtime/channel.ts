import { randomUUID } from 'node:crypto';
import type net from 'node:net';
import { deadlineExceeded, invalidRequest, unavailable } from '../core/error.ts';
import type { RuntimeEndpoint } from '../core/instance.ts';
import { CallBatch } from './call-batch.ts';
import { type Connection, connect } from './connection.ts';
import { encodeFrame, type Frame } from './frames.ts';
import { OpenCall } from './open-call.ts';
import {
  type CallError,
  type CallHeader,
  type Cancel,
  FRAME,
  type HelloOk,
  type Init,
  type InitOk,
  type Pong,
  type Stopped,
} from './protocol.ts';

/** What a call listens to: an `AbortSignal`, or something lighter that behaves alike. */
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
  /** The caller going away, or an interrupt (`signal.reason === 'interrupt'`): the call is cancelled. */
  readonly signal?: CallSignal | undefined;
  /** Makes it a stream: one event each. Grant more with `Channel.credit` as the reader takes them. */
  readonly onChunk?: ((event: Buffer, callId: number) => void) | undefined;
  /** Told when a call that was given up has ended inside after all, or its connection has: its place there is free again. */
  readonly onLateEnd?: () => void;
}

/** What became of the user's code. Failures of the platform reject instead. */
export type CallOutcome =
  | { readonly ok: true /** JSON bytes. */; readonly data: Buffer; readonly runMicros: number }
  | { readonly ok: false; readonly code: number; readonly text: string; readonly runMicros: number };

export type InitOutcome =
  | { readonly ok: true; readonly timing: InitOk }
  | { readonly ok: false; readonly error: CallError };

/** The connection ended with the call unanswered: whoever owns the instance says why. */
export class ChannelClosed extends Error {
  override readonly name = 'ChannelClosed';
}

/** CHUNK bytes that a stream may send before its reader has taken any. */
export const STREAM_CREDIT_BYTES = 256 * 1024;
/** Its length is a u16. */
const MAX_CALL_HEADER_BYTES = 0xffff;
/** For the last words on the control socket when a runtime that was told to stop has closed its data socket. */
const LAST_WORDS_MS = 1000;
/**
 * One control plane's connection to one instance's runtime: a data and a control socket.
 *
 * Calls are written in the same turn of the event loop, in the order in which `call` was entered; the runtime holds them in that order. Bounding how many
 * wait is the owner's part. Ends with `close`, or by itself when either socket ends: `closed` resolves and every open
 * call rejects with `ChannelClosed`.
 */
export class Channel {
  /** What the runtime said of itself when the channel opened. */
  readonly hello: HelloOk;
  /** Resolves once the connection has ended, whichever side ended it. */
  readonly closed: Promise<void>;
  readonly #data: net.Socket;
  readonly #control: net.Socket;
  readonly #batch: CallBatch;
  readonly #pending = new Map<number, OpenCall>();
  /** Calls that were given up here and not yet answered there: they still hold a place in the runtime. */
  readonly #abandoned = new Map<number, (() => void) | undefined>();
  #nextCallId = 1;
  #isClosed = false;
  #resolveClosed!: () => void;
  /** Of the INIT that was sent last. */
  #outcome: Promise<InitOutcome>;
  #onInit!: (outcome: InitOutcome) => void;
  #onStopped: ((stopped: Stopped) => void) | undefined;
  readonly #owner = {
    cancel: (callId: number, reason: Cancel['reason']) => this.#cancel(callId, reason),
    abandon: (callId: number, reason: Cancel['reason']) => this.#abandon(callId, reason),
  };
  readonly #pings: ((pong: Pong) => void)[] = [];
  /** Whoever waits for something else than a call and must hear of the end. */
  readonly #onClosed = new Set<() => void>();

  private constructor(data: Connection, control: Connection, hello: HelloOk) {
    this.hello = hello;
    this.#data = data.socket;
    this.#control = control.socket;
    this.#batch = new CallBatch(data.socket);
    this.closed = new Promise(resolve => {
      this.#resolveClosed = resolve;
    });
    data.onFrame = frame => this.#onDataFrame(frame);
    control.onFrame = frame => this.#onControlFrame(frame);
    data.onClose = () => this.#onDataClosed();
    control.onClose = () => this.close();
    this.#outcome = new Promise(resolve => {
      this.#onInit = resolve;
    });
    for (const frame of data.early) this.#onDataFrame(frame);
    for (const frame of control.early) this.#onControlFrame(frame);
    if (data.socket.destroyed || control.socket.destroyed) this.close();
  }

  /**
   * Connects, and keeps trying while nothing listens yet, until `signal` aborts. With `init` the code begins to load in the same
   * round trip; `initialized` tells what became of it. Fails with `unavailable` (refused by the runtime, or ended) or
   * `deadline_exceeded` (`signal`).
   */
  static async open(endpoint: RuntimeEndpoint, secret: string, signal: AbortSignal, init?: Init): Promise<Channel> {
    const client = randomUUID();
    const connections = await Promise.allSettled([
      connect(endpoint, { secret, client, role: 'data' }, signal, init && encodeInit(init)),
      connect(endpoint, { secret, client, role: 'control' }, signal),
    ]);
    const [data, control] = connections;
    if (data.status === 'fulfilled' && control.status === 'fulfilled') {
      return new Channel(data.value, control.value, data.value.hello);
    }
    let failure: unknown;
    for (const connection of connections) {
      if (connection.status === 'fulfilled') connection.value.socket.destroy();
      else failure ??= connection.reason;
    }
    throw failure;
  }

  /** Calls that hold a place in the runtime: running, queued, or given up and not yet answered. */
  get inFlight(): number {
    return this.#pending.size + this.#abandoned.size;
  }

  /** Bytes of calls that this process still holds because the runtime does not read (given-up calls too). */
  get unsentBytes(): number {
    return this.#data.writableLength + this.#batch.bytes;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * Loads the code. A failure to load is an outcome (it is kept by the runtime); rejects with `ChannelClosed`, or
   * `deadline_exceeded` when `signal` aborts first.
   */
  initialize(init: Init, signal: AbortSignal): Promise<InitOutcome> {
    this.#outcome = new Promise<InitOutcome>(resolve => {
      this.#onInit = resolve;
    });
    this.#batch.flush();
    if (!this.#isClosed) this.#data.write(encodeInit(init));
    return this.initialized(signal);
  }

  /** What became of the INIT that went out with `open`. Rejects as `initialize` does. */
  initialized(signal: AbortSignal): Promise<InitOutcome> {
    return this.#orClosed(this.#outcome, signal, 'the code did not load in time');
  }

  /**
   * Runs one call. Resolves with what became of the user's code; rejects with `deadline_exceeded` (`timed out after <n> s`),
   * `unavailable` (the caller went away) or `ChannelClosed`.
   */
  call(call: Call): Promise<CallOutcome> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) {
        reject(new ChannelClosed('the connection to the instance is closed'));
        return;
      }
      if (call.signal?.aborted) {
        reject(unavailable('the caller went away'));
        return;
      }
      const header = headerOf(call);
      const headerBytes = Buffer.byteLength(header);
      if (headerBytes > MAX_CALL_HEADER_BYTES) {
        reject(invalidRequest(`headers of ${headerBytes} bytes exceed the limit of ${MAX_CALL_HEADER_BYTES}`));
        return;
      }
      const callId = this.#nextCallId;
      this.#nextCallId = callId === 0xffff_ffff ? 1 : callId + 1;
      this.#pending.set(callId, new OpenCall(callId, call, this.#owner, resolve, reject));
      this.#batch.add(callId, header, headerBytes, call.body);
    });
  }

  /** Lets the stream of a call send `bytes` more. */
  credit(callId: number, bytes: number): void {
    if (this.#isClosed || !this.#pending.has(callId)) return;
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32BE(bytes);
    this.#control.write(encodeFrame(FRAME.CREDIT, callId, payload));
  }

  /** Asks how the runtime is. Fails with `deadline_exceeded` when `signal` aborts first, or `ChannelClosed`. */
  async ping(signal: AbortSignal): Promise<Pong> {
    const pong = new Promise<Pong>(resolve => {
      this.#pings.push(resolve);
    });
    if (!this.#isClosed) this.#control.write(encodeFrame(FRAME.PING, 0));
    return await this.#orClosed(pong, signal, 'the runtime did not answer a ping in time');
  }

  /**
   * Runs pre_stop and ends the runtime. `{}` when it ended without saying more. Fails with `deadline_exceeded` when
   * `signal` aborts first.
   */
  async stop(graceMs: number, signal: AbortSignal): Promise<Stopped> {
    if (this.#isClosed) return {};
    const stopped = new Promise<Stopped>(resolve => {
      this.#onStopped = resolve;
    });
    this.#control.write(encodeFrame(FRAME.STOP, 0, JSON.stringify({ graceMs })));
    try {
      return await this.#orClosed(stopped, signal, 'the runtime did not stop in time');
    } catch (error) {
      if (error instanceof ChannelClosed) return {};
      throw error;
    }
  }

  /** Lets go of the instance; it lives on. Open calls reject with `ChannelClosed`. */
  close(): void {
    if (!this.#isClosed) this.#failCalls();
    this.#data.destroy();
    this.#control.destroy();
    for (const onClosed of this.#onClosed) onClosed();
    this.#onClosed.clear();
    this.#resolveClosed();
  }

  #onDataClosed(): void {
    if (this.#onStopped === undefined || this.#control.destroyed) {
      this.close();
      return;
    }
    // Both sockets of a runtime that stops end at once, and its STOPPED may not be read yet.
    if (!this.#isClosed) this.#failCalls();
    setTimeout(() => this.close(), LAST_WORDS_MS).unref();
  }

  #failCalls(): void {
    this.#isClosed = true;
    const error = new ChannelClosed('the connection to the instance was lost');
    for (const pending of this.#pending.values()) pending.fail(error);
    this.#pending.clear();
    const abandoned = [...this.#abandoned.values()];
    this.#abandoned.clear();
    for (const onLateEnd of abandoned) onLateEnd?.();
  }

  #cancel(callId: number, reason: Cancel['reason']): void {
    if (this.#isClosed) return;
    // A CANCEL is about a call that was sent.
    this.#batch.flush();
    this.#control.write(encodeFrame(FRAME.CANCEL, callId, JSON.stringify({ reason })));
  }

  #abandon(callId: number, reason: Cancel['reason']): void {
    const pending = this.#pending.get(callId);
    if (this.#isClosed || !pending) return;
    this.#pending.delete(callId);
    this.#abandoned.set(callId, pending.onLateEnd);
    this.#cancel(callId, reason);
  }

  #onDataFrame(frame: Frame): void {
    if (frame.callId === 0) {
      this.#onInitFrame(frame);
      return;
    }
    const pending = this.#pending.get(frame.callId);
    if (frame.type === FRAME.CHUNK) {
      pending?.onChunk?.(frame.payload, frame.callId);
      return;
    }
    if (pending === undefined) {
      const onLateEnd = this.#abandoned.get(frame.callId);
      this.#abandoned.delete(frame.callId);
      onLateEnd?.();
      return;
    }
    this.#pending.delete(frame.callId);
    if (frame.type === FRAME.RESULT) {
      pending.settle({ ok: true, data: frame.payload.subarray(4), runMicros: frame.payload.readUInt32BE(0) });
    } else {
      const error = JSON.parse(frame.payload.toString()) as CallError;
      pending.settle({ ok: false, code: error.code, text: error.message, runMicros: error.runMicros ?? 0 });
    }
  }

  #onInitFrame(frame: Frame): void {
    const message: unknown = JSON.parse(frame.payload.toString());
    this.#onInit(
      frame.type === FRAME.INIT_OK
        ? { ok: true, timing: message as InitOk }
        : { ok: false, error: message as CallError },
    );
  }

  #onControlFrame(frame: Frame): void {
    if (frame.type === FRAME.PONG) this.#pings.shift()?.(JSON.parse(frame.payload.toString()) as Pong);
    else if (frame.type === FRAME.STOPPED) this.#onStopped?.(JSON.parse(frame.payload.toString()) as Stopped);
  }

  /** `promise`, unless the channel closes or `signal` aborts first. */
  #orClosed<T>(promise: Promise<T>, signal: AbortSignal, late: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        signal.removeEventListener('abort', onAbort);
        this.#onClosed.delete(onClosed);
        act();
      };
      const onAbort = () => settle(() => reject(deadlineExceeded(late)));
      const onClosed = () => settle(() => reject(new ChannelClosed('the connection to the instance was lost')));
      if (signal.aborted) onAbort();
      else if (this.#isClosed) onClosed();
      else {
        signal.addEventListener('abort', onAbort, { once: true });
        this.#onClosed.add(onClosed);
        promise.then(value => settle(() => resolve(value)), reject);
      }
    });
  }
}

function encodeInit(init: Init): Buffer {
  return encodeFrame(FRAME.INIT, 0, JSON.stringify(init));
}

/** The JSON of a `CallHeader`: spreading it into a new object costs as much as writing it. */
/** What the clock that every process of this machine shares said when that of `performance` began. */
const MONOTONIC_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();

function headerOf({ header, timeoutMs }: Call): string {
  const json = JSON.stringify(header);
  return `{"remainingMs":${timeoutMs},"atMs":${Math.round(MONOTONIC_MS + performance.now())},${json.slice(1)}`;
}

import { randomUUID } from 'node:crypto';
import type net from 'node:net';
import { USER_CODES } from '../core/codes.ts';
import { deadlineExceeded, invalidRequest, unavailable } from '../core/error.ts';
import type { RuntimeEndpoint } from '../core/instance.ts';
import { type Call, type CallOutcome, type InitOutcome, type StateSaver, timedOut } from './call.ts';
import { CallBatch, encodeCallHeader, MONOTONIC_MS } from './call-batch.ts';
import {
  type Connection,
  type ConnectionOwner,
  type ConnectOptions,
  ControlLink,
  connect,
  letGoOf,
} from './connection.ts';
import {
  checkSize,
  decodeError,
  decodeFailure,
  decodeInitOk,
  decodePong,
  decodeResult,
  decodeStopped,
  endsCall,
  nameOf,
  ProtocolError,
} from './decoder.ts';
import { encodeFrame, encodeMessage, type Frame } from './frames.ts';
import { OpenCall, OpenCalls } from './open-calls.ts';
import {
  type Cancel,
  FRAME,
  type HelloOk,
  type Init,
  type InitOk,
  type Pong,
  STOPPING,
  type Stopped,
} from './protocol.ts';
import { ChannelSaves, isOfState } from './saves.ts';

/** The connection ended with the call unanswered. The owner of the instance explains why. */
export class ChannelClosed extends Error {
  override readonly name = 'ChannelClosed';
}

export const CONNECTION_LOST = 'the connection to the instance was lost';

/** Limit from the u16 length of the header. */
const MAX_CALL_HEADER_BYTES = 0xffff;
/**
 * Time that an idle runtime may leave a STOP unread before the STOP is repeated over the control connection.
 * Other code may keep such a runtime busy.
 */
const UNREAD_STOP_MS = 100;
/** Time to read the last control frames after a stopping runtime has closed its data socket. */
const LAST_WORDS_MS = 1000;
/**
 * The connection of a service process to an instance's runtime: a data socket and a control socket.
 *
 * Calls are written in the turn of the event loop in which `call` was entered, in that order, and the runtime
 * keeps the order. The owner bounds how many wait. The channel ends with `close`, or when either socket ends:
 * `closed` resolves, and every open call rejects with `ChannelClosed`.
 */
export class Channel {
  /** The runtime's greeting when the channel opened. */
  readonly hello: HelloOk;
  /**
   * True for a runtime on this machine, which shares the monotonic clock. The clock of another machine has
   * another start.
   */
  readonly #isHere: boolean;
  /** Resolves once the connection has ended, whichever side ended it. */
  readonly closed: Promise<void>;
  readonly #data: net.Socket;
  readonly #control: ControlLink;
  readonly #dropPayload: (callId: number) => void;
  readonly #batch: CallBatch;
  readonly #pending = new OpenCalls();
  /** Abandoned calls that the runtime has not answered yet: each still holds a slot in the runtime. */
  readonly #abandoned = new Map<number, OpenCall>();
  readonly #isAbandoned = (callId: number) => this.#abandoned.has(callId);
  #isClosed = false;
  #resolveClosed!: () => void;
  /** The reason for the end, once the channel has ended. */
  #closedBecause = CONNECTION_LOST;
  /** The outcome of the last INIT. */
  #outcome: Promise<InitOutcome>;
  #onInit!: (outcome: InitOutcome) => void;
  /** Number of unanswered INITs. */
  #inits: number;
  #onStopped: ((stopped: Stopped) => void) | undefined;
  /** True when STOP was sent over the data connection. */
  #stopsOverData = false;
  #saves: ChannelSaves | undefined;
  readonly #owner = {
    cancel: (callId: number, reason: Cancel['reason']) => this.#cancel(callId, reason),
    abandon: (callId: number, reason: Cancel['reason']) => this.#abandon(callId, reason),
  };
  readonly #pings: ((pong: Pong) => void)[] = [];
  /** Listeners for the end of the channel, for waits that are not calls. */
  readonly #onClosed = new Set<() => void>();

  private constructor(
    data: Connection,
    isHere: boolean,
    inits: number,
    connectControl: (signal: AbortSignal) => Promise<Connection>,
  ) {
    this.hello = data.hello;
    this.#isHere = isHere;
    this.#data = data.socket;
    this.#dropPayload = data.drop;
    this.#batch = new CallBatch(data.socket);
    this.#inits = inits;
    this.closed = new Promise(resolve => {
      this.#resolveClosed = resolve;
    });
    this.#outcome = new Promise(resolve => {
      this.#onInit = resolve;
    });
    const owner: ConnectionOwner = {
      admit: (type, callId, payloadBytes) => this.#admitControl(type, callId, payloadBytes),
      receive: frame => this.#onControlFrame(frame),
      onClose: why => this.#end(why),
    };
    this.#control = new ControlLink(owner, connectControl);
    data.setOwner({
      admit: (type, callId, payloadBytes) => this.#admitData(type, callId, payloadBytes),
      receive: frame => this.#onDataFrame(frame),
      onClose: why => this.#onDataClosed(why),
    });
  }

  /**
   * Connects, with retries while nothing listens yet, until `signal` aborts.
   * With `init`, the code begins to load in the same round trip, and `initialized` returns the outcome. The
   * control connection is then opened after that, or when it is needed, so that a start waits for nothing
   * else. For a runtime that `stopsOverData`, the control connection always opens later. Fails with
   * `unavailable` (refused by the runtime, or ended) or `deadline_exceeded` (`signal`).
   */
  static async open(endpoint: RuntimeEndpoint, secret: string, signal: AbortSignal, init?: Init): Promise<Channel> {
    const next = init && encodeMessage(FRAME.INIT, init);
    return await Channel.#open(endpoint, secret, signal, { next });
  }

  /**
   * Connects to a runtime that was initialized before. When nothing listens, the runtime has ended
   * (`unavailable`).
   */
  static async reopen(endpoint: RuntimeEndpoint, secret: string, signal: AbortSignal): Promise<Channel> {
    return await Channel.#open(endpoint, secret, signal, { hasBegun: true });
  }

  static async #open(
    endpoint: RuntimeEndpoint,
    secret: string,
    signal: AbortSignal,
    options: ConnectOptions,
  ): Promise<Channel> {
    const client = randomUUID();
    // A runtime that has greeted over one connection is listening.
    const connectControl = (over: AbortSignal) =>
      connect(endpoint, { secret, client, role: 'control' }, over, { hasBegun: true });
    const data = await connect(endpoint, { secret, client, role: 'data' }, signal, options);
    const opensControl = options.next === undefined && !data.hello.stopsOverData;
    // The data connection is not read until the control connection is open.
    const control = opensControl ? await connectControl(signal).catch(letGoOf(data)) : undefined;
    const channel = new Channel(data, endpoint.kind === 'unix', options.next === undefined ? 0 : 1, connectControl);
    if (control !== undefined) channel.#control.adopt(control);
    else if (options.next === undefined) channel.#control.openLater();
    return channel;
  }

  /** Number of calls that hold a slot in the runtime: running, queued, or abandoned and not yet answered. */
  get inFlight(): number {
    return this.#pending.size + this.#abandoned.size;
  }

  /** Bytes of calls, abandoned ones too, that this process holds because the runtime does not read them. */
  get unsentBytes(): number {
    return this.#data.writableLength + this.#batch.bytes;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The reason the channel closed, as a sentence: a break of the protocol, or a lost connection. */
  get closedBecause(): string {
    return this.#closedBecause;
  }

  /**
   * Loads the code. A failed load is an outcome, which the runtime keeps.
   * Rejects with `ChannelClosed`, or with `deadline_exceeded` when `signal` aborts first.
   */
  initialize(init: Init, signal: AbortSignal): Promise<InitOutcome> {
    this.#outcome = new Promise<InitOutcome>(resolve => {
      this.#onInit = resolve;
    });
    this.#batch.flush();
    this.#inits += 1;
    if (!this.#isClosed) this.#data.write(encodeMessage(FRAME.INIT, init));
    return this.initialized(signal);
  }

  /** Returns the outcome of the INIT that was sent with `open`. Rejects like `initialize`. */
  initialized(signal: AbortSignal): Promise<InitOutcome> {
    return this.#orClosed(this.#outcome, signal, 'the code did not load in time');
  }

  /**
   * Runs one call, and resolves with the outcome of the user's code. A call without remaining time is not
   * run.
   * Rejects with `deadline_exceeded` (`timed out after <n> s`), `unavailable` (the client disconnected) or
   * `ChannelClosed`.
   */
  call(call: Call): Promise<CallOutcome> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) return reject(new ChannelClosed(this.#closedBecause));
      if (call.signal?.aborted) return reject(unavailable('the caller went away'));
      if (call.waitedMs !== undefined && call.waitedMs >= call.timeoutMs) {
        return reject(timedOut(call));
      }
      const header = encodeCallHeader(call, this.#isHere);
      const headerBytes = Buffer.byteLength(header);
      if (headerBytes > MAX_CALL_HEADER_BYTES)
        return reject(invalidRequest(`headers of ${headerBytes} bytes exceed the limit of ${MAX_CALL_HEADER_BYTES}`));
      const callId = this.#pending.nextId(this.#isAbandoned);
      this.#pending.add(new OpenCall(callId, call, this.#owner, resolve, reject));
      if (call.settles !== undefined) this.#saves?.expect(callId, call.settles);
      this.#batch.add(callId, header, headerBytes, call.body);
      // An interrupt before the call was sent found no listener.
      if (call.signal?.reason === 'interrupt') this.#cancel(callId, 'interrupt');
    });
  }

  /** Admits the SAVEs of a durable agent. Must precede its first call. */
  saveTo(saver: StateSaver): void {
    this.#saves = new ChannelSaves(saver, frame => this.#control.write(frame));
  }

  /**
   * Lets the stream of a call send `bytes` more.
   * Grants are collected, because frames to a runtime that does not read them would pile up here.
   */
  credit(callId: number, bytes: number): void {
    const call = this.#pending.get(callId);
    if (this.#isClosed || call === undefined) return;
    const granted = call.grantCredit(bytes);
    if (granted === 0) return;
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32BE(granted);
    this.#control.write(encodeFrame(FRAME.CREDIT, callId, payload));
  }

  /**
   * Queries the runtime's load. Fails with `deadline_exceeded` when `signal` aborts first, or
   * `ChannelClosed`.
   */
  async ping(signal: AbortSignal): Promise<Pong> {
    const pong = new Promise<Pong>(resolve => {
      this.#pings.push(resolve);
    });
    if (!this.#isClosed) this.#control.write(encodeFrame(FRAME.PING, 0));
    return await this.#orClosed(pong, signal, 'the runtime did not answer a ping in time');
  }

  /**
   * Runs pre_stop and ends the runtime. Returns `{}` when the runtime ended without a further report.
   * Fails with `deadline_exceeded` when `signal` aborts first.
   */
  async stop(graceMs: number, signal: AbortSignal): Promise<Stopped> {
    if (this.#isClosed) return {};
    const stopped = new Promise<Stopped>(resolve => {
      this.#onStopped = resolve;
    });
    const frame = encodeMessage(FRAME.STOP, { graceMs });
    const isQuiet = this.inFlight === 0 && this.#inits === 0;
    this.#stopsOverData = this.hello.stopsOverData === true && isQuiet && !this.#control.isUsed;
    let unread: NodeJS.Timeout | undefined;
    if (this.#stopsOverData) {
      this.#data.write(frame);
      unread = setTimeout(() => this.#control.write(frame), UNREAD_STOP_MS);
    } else this.#control.write(frame);
    try {
      return await this.#orClosed(stopped, signal, 'the runtime did not stop in time');
    } catch (error) {
      if (error instanceof ChannelClosed) return {};
      throw error;
    } finally {
      clearTimeout(unread);
    }
  }

  /** Closes the connection; the instance continues. Open calls reject with `ChannelClosed`. */
  close(): void {
    this.#end(null);
  }

  #end(why: string | null): void {
    if (!this.#isClosed) this.#failCalls(why);
    this.#data.destroy();
    this.#control.destroy();
    for (const onClosed of this.#onClosed) onClosed();
    this.#onClosed.clear();
    this.#resolveClosed();
  }

  #onDataClosed(why: string | null): void {
    if (this.#onStopped === undefined || this.#control.isEnded || !this.#control.isUsed) {
      this.#end(why);
      return;
    }
    // Both sockets of a stopping runtime end at once, and its STOPPED may still be unread.
    if (!this.#isClosed) this.#failCalls(why);
    setTimeout(() => this.close(), LAST_WORDS_MS).unref();
  }

  #failCalls(why: string | null): void {
    this.#isClosed = true;
    if (why !== null) this.#closedBecause = why;
    const error = new ChannelClosed(this.#closedBecause);
    for (const pending of this.#pending.removeAll()) pending.fail(error);
    const abandoned = [...this.#abandoned.values()];
    this.#abandoned.clear();
    for (const call of abandoned) call.onLateEnd?.();
  }

  #cancel(callId: number, reason: Cancel['reason']): void {
    if (this.#isClosed) return;
    // A CANCEL must follow its CALL.
    this.#batch.flush();
    this.#control.write(encodeFrame(FRAME.CANCEL, callId, JSON.stringify({ reason })));
  }

  #abandon(callId: number, reason: Cancel['reason']): void {
    const pending = this.#pending.get(callId);
    if (this.#isClosed || !pending) return;
    this.#pending.remove(pending);
    this.#abandoned.set(callId, pending);
    // A SAVE must not get lost: the runtime's state would be ahead of the saved one.
    if (this.#saves === undefined) this.#dropPayload(callId);
    this.#cancel(callId, reason);
  }

  /**
   * Admits only frames that answer a request. A runtime can thus send no more than was requested.
   * Before the first call, only answers to INIT and STOP are admitted. Drops payloads of abandoned calls.
   */
  #admitData(type: number, callId: number, payloadBytes: number): boolean {
    checkSize(type, payloadBytes);
    const isSave = this.#saves !== undefined && isOfState(type, callId);
    if (callId === 0) {
      if ((type === FRAME.INIT_OK || type === FRAME.ERROR) && this.#inits > 0) return true;
      if ((type === FRAME.STOPPED && this.#stopsOverData) || isSave) return true;
      throw new ProtocolError(`${nameOf(type)} that answers nothing`);
    }
    const pending = this.#pending.get(callId);
    const call = pending ?? this.#abandoned.get(callId);
    if (call === undefined) throw new ProtocolError(`${nameOf(type)} for a call that is not open`);
    if (isSave) return true;
    if (type === FRAME.CHUNK) call.spendCredit(payloadBytes);
    else if (!endsCall(type) && type !== FRAME.SPANS) throw new ProtocolError(`${nameOf(type)} for a call`);
    return pending !== undefined;
  }

  #onDataFrame({ type, callId, payload }: Frame): void {
    if (isOfState(type, callId)) {
      this.#saves?.receive({ type, callId, payload }, this.#abandoned.has(callId));
      return;
    }
    if (callId === 0) {
      if (type === FRAME.STOPPED) this.#onStopped?.(decodeStopped(payload));
      else this.#onInitFrame(type, payload);
      return;
    }
    const pending = this.#pending.get(callId);
    if (type === FRAME.CHUNK || type === FRAME.SPANS) {
      pending?.receivePart(type, payload);
      return;
    }
    if (pending === undefined) {
      const abandoned = this.#abandoned.get(callId);
      this.#abandoned.delete(callId);
      abandoned?.onLateEnd?.();
      return;
    }
    // Decoded before the call is removed: an error thrown here fails this call with the other open ones.
    const outcome = pending.withSpans(type === FRAME.RESULT ? decodeResult(payload) : decodeFailure(payload));
    this.#pending.remove(pending);
    if (!outcome.ok && outcome.code === USER_CODES.protocolBroken.code && outcome.text === STOPPING) {
      pending.fail(unavailable('instance exited: it is stopping'));
    } else if (this.#saves !== undefined) this.#saves.complete(pending, outcome);
    else pending.complete(outcome);
  }

  #onInitFrame(type: number, payload: Buffer): void {
    const outcome: InitOutcome =
      type === FRAME.INIT_OK ? this.#loaded(decodeInitOk(payload)) : { ok: false, error: decodeError(payload) };
    this.#inits -= 1;
    this.#onInit(outcome);
    if (this.hello.stopsOverData) this.#control.openLater();
    // Runs after the code that awaits the outcome.
    else setImmediate(() => this.#control.open());
  }

  #loaded(timing: InitOk): InitOutcome {
    const { beganMicros } = timing;
    if (beganMicros === undefined || !this.#isHere) return { ok: true, timing };
    return { ok: true, timing, beganMs: beganMicros / 1000 - MONOTONIC_MS };
  }

  #admitControl(type: number, callId: number, payloadBytes: number): boolean {
    checkSize(type, payloadBytes);
    if (callId === 0 && type === FRAME.PONG && this.#pings.length > 0) return true;
    if (callId === 0 && type === FRAME.STOPPED && this.#onStopped !== undefined) return true;
    throw new ProtocolError(`${nameOf(type)} that answers nothing`);
  }

  #onControlFrame({ type, payload }: Frame): void {
    if (type === FRAME.PONG) {
      const pong = decodePong(payload);
      this.#pings.shift()?.(pong);
    } else this.#onStopped?.(decodeStopped(payload));
  }

  /** Awaits `promise`, unless the channel closes or `signal` aborts first. */
  #orClosed<T>(promise: Promise<T>, signal: AbortSignal, late: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        signal.removeEventListener('abort', onAbort);
        this.#onClosed.delete(onClosed);
        act();
      };
      const onAbort = () => settle(() => reject(deadlineExceeded(late)));
      const onClosed = () => settle(() => reject(new ChannelClosed(this.#closedBecause)));
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

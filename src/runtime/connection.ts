import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { deadlineExceeded, loggable, messageOf, ServiceError, unavailable } from '../core/error.ts';
import type { RuntimeEndpoint } from '../core/instance.ts';
import { pause } from '../lib/backoff.ts';
import { frameOf } from '../lib/length-frames.ts';
import { OVER } from '../lib/linked-signal.ts';
import { connectProven } from '../lib/proven-tls.ts';
import { isShortage } from '../lib/system-errors.ts';
import { connectUnix } from '../lib/unix-socket.ts';
import { checkSize, decodeError, decodeHelloOk, nameOf, ProtocolError } from './decoder.ts';
import { encodeFrame, type Frame, FrameReader, type FrameReceiver } from './frames.ts';
import { FRAME, type HelloOk, PROTOCOL_VERSION } from './protocol.ts';

const CONNECT_RETRY_MS = 20;
/**
 * The buffer for reads of all connections. Each read is processed before the next one begins.
 * Otherwise Node would allocate a buffer of this size for every read, which costs more than the answer in it.
 */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

/** The message that makes a pod's manager connect the following bytes to the runtime. */
const TO_RUNTIME = frameOf(Buffer.from('{"op":"runtime"}'));

/** The owner of a connection. `admit` and `take` end it by throwing. */
export interface ConnectionOwner {
  readonly admit: FrameReceiver['admit'];
  readonly receive: FrameReceiver['receive'];
  /** Called at the end. `why` is the reason this side ended the connection; null when it just ended. */
  readonly onClose: (why: string | null) => void;
}

/** A socket to a runtime that has accepted HELLO. No more bytes are read until it has an owner. */
export interface Connection {
  readonly socket: net.Socket;
  readonly hello: HelloOk;
  setOwner(owner: ConnectionOwner): void;
  /** Drops the rest of this call's frame, if one has begun. */
  drop(callId: number): void;
}

export interface ConnectOptions {
  /** A frame that is sent after HELLO in the same write. */
  readonly next?: Buffer | undefined;
  /** True for a runtime that started long ago: there is no retry when nothing listens. */
  readonly hasBegun?: boolean;
}

/**
 * Connects and sends HELLO, with retries while nothing listens yet, until `signal` aborts.
 * Fails with `unavailable` (refused by the runtime, ended, or nothing listens) or `deadline_exceeded`
 * (`signal`).
 */
export async function connect(
  endpoint: RuntimeEndpoint,
  hello: { secret: string; client: string; role: 'data' | 'control' },
  signal: AbortSignal,
  { next, hasBegun = false }: ConnectOptions = {},
): Promise<Connection> {
  for (;;) {
    if (signal.aborted) throw deadlineExceeded('the runtime did not answer in time');
    try {
      const first = encodeFrame(FRAME.HELLO, 0, JSON.stringify({ version: PROTOCOL_VERSION, spans: 1, ...hello }));
      const greeting = next === undefined ? first : Buffer.concat([first, next]);
      if (endpoint.kind !== 'pod') return await greet(onread => open(endpoint, onread, greeting), signal);
      const socket = await connectProven(endpoint, signal, Buffer.concat([TO_RUNTIME, greeting]));
      return await greet(onread => readWith(socket, onread), signal);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (error instanceof ServiceError) throw error;
      if (hasBegun || (code !== 'ECONNREFUSED' && code !== 'ENOENT')) {
        throw unavailable(`the runtime cannot be reached: ${messageOf(error)}`, { cause: error });
      }
      await delay(CONNECT_RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}

type DirectEndpoint = Exclude<RuntimeEndpoint, { kind: 'pod' }>;

function open(endpoint: DirectEndpoint, onread: net.OnReadOpts, first: Buffer): net.Socket {
  const socket =
    endpoint.kind === 'unix'
      ? connectUnix(endpoint.path, onread)
      : net.connect({ host: endpoint.host, port: endpoint.port, noDelay: true, onread });
  socket.write(first);
  return socket;
}

/**
 * Reads from a TLS socket, which does not support a buffer of the reader: it allocates the decrypted bytes
 * itself.
 */
function readWith(socket: net.Socket, { callback }: net.OnReadOpts): net.Socket {
  socket.allowHalfOpen = false;
  socket.on('data', (chunk: Buffer) => {
    if (!callback(chunk.length, chunk)) socket.pause();
  });
  return socket.resume();
}

/** Reads the answer to HELLO, which `open` has sent or will send. */
function greet(open: (onread: net.OnReadOpts) => net.Socket, signal: AbortSignal): Promise<Connection> {
  return new Promise((resolve, reject) => {
    const onread = {
      buffer: READ_BUFFER,
      callback: (bytes: number, buffer: Uint8Array) => feed((buffer as Buffer).subarray(0, bytes)),
    };
    const socket = open(onread);
    let connection: Connection | undefined;
    let owner: ConnectionOwner | undefined;
    /** The reason this side ended the connection. */
    let why: string | null = null;
    let isClosed = false;
    const end = () => {
      signal.removeEventListener('abort', onAbort);
      reader.close();
      socket.destroy();
    };
    const fail = (error: Error) => {
      end();
      reject(error);
    };
    const breakOff = (error: unknown) => {
      why ??= brokenBy(error);
      fail(unavailable(why));
    };
    const onAbort = () => fail(deadlineExceeded('the runtime did not answer in time'));
    signal.addEventListener('abort', onAbort, { once: true });
    const greeting = (frame: Frame) => {
      if (frame.type === FRAME.ERROR) {
        fail(unavailable(`the runtime refused the connection: ${loggable(decodeError(frame.payload).message)}`));
        return;
      }
      connection = {
        socket,
        hello: decodeHelloOk(frame.payload),
        setOwner: newOwner => {
          if (isClosed) {
            newOwner.onClose(why);
            return;
          }
          owner = newOwner;
          reader.receiver = { ...newOwner, abandon };
          isReading = true;
          feed(null);
          socket.resume();
        },
        drop: callId => reader.drop(callId),
      };
      signal.removeEventListener('abort', onAbort);
      // Later bytes belong to the owner, which is not set yet. They stay in the reader.
      isReading = false;
      reader.pause();
      resolve(connection);
    };
    const abandon = () =>
      breakOff(new ProtocolError('it did not finish a frame, and other connections needed the memory'));
    const reader = new FrameReader({ admit: admitGreeting, receive: greeting, abandon });
    let isReading = true;
    const feed = (chunk: Buffer | null): boolean => {
      if (socket.destroyed) return false;
      try {
        if (chunk === null) reader.release();
        else reader.push(chunk);
      } catch (error) {
        breakOff(error);
      }
      return isReading;
    };
    // An error of an open connection appears as its close. The owner reads the reason from the sandbox.
    socket.on('error', error => fail(error));
    socket.on('close', () => {
      isClosed = true;
      reader.close();
      if (owner) owner.onClose(why);
      else if (!connection) fail(unavailable('the runtime closed the connection'));
    });
  });
}

/** Returns the sentence for a connection that was ended because of `error`. */
export function brokenBy(error: unknown): string {
  return `the runtime broke the protocol: ${messageOf(error)}`;
}

function admitGreeting(type: number, callId: number, payloadBytes: number): boolean {
  checkSize(type, payloadBytes);
  if ((type === FRAME.HELLO_OK || type === FRAME.ERROR) && callId === 0) return true;
  throw new ProtocolError(`${nameOf(type)} before HELLO_OK`);
}

/** Delay after which the connection is opened although no frame needs it yet. */
const LATER_MS = 1000;
/** Delay before a retry when this process had too few resources to connect. */
const RETRY_MS = 250;
/**
 * Limit of bytes that the runtime has not read.
 * The frames are small and each has a cause, so a runtime that exceeds the limit does not read at all.
 */
const MAX_UNREAD_BYTES = 1024 * 1024;

/**
 * The control connection of a channel. It may open later than the data connection; earlier frames are kept
 * for it.
 */
export class ControlLink {
  readonly #owner: ConnectionOwner;
  readonly #connect: (signal: AbortSignal) => Promise<Connection>;
  readonly #over = new AbortController();
  #isOpening = false;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #socket: net.Socket | undefined;
  #later: NodeJS.Timeout | undefined;

  constructor(owner: ConnectionOwner, connect: (signal: AbortSignal) => Promise<Connection>) {
    this.#owner = owner;
    this.#connect = connect;
  }

  get isEnded(): boolean {
    return this.#socket?.destroyed ?? this.#over.signal.aborted;
  }

  /** True once opening has begun. False: no frame was sent, and none will be unless `write` is called. */
  get isUsed(): boolean {
    return this.#isOpening;
  }

  /**
   * Connects after a delay: short-lived channels need no control connection, and others have it before its
   * first use.
   */
  openLater(): void {
    if (this.#isOpening) return;
    // The random part spreads the connections of many instances that were adopted at once.
    this.#later ??= setTimeout(() => this.open(), LATER_MS * (1 + Math.random())).unref();
  }

  /**
   * Starts to connect, unless that has begun. The greeting may take as long as the channel is open.
   * Code that blocks all threads of its process makes a runtime slow, not dead, and its calls have their own
   * time limits. A refusal or a close ends the channel. The next connection to the runtime then reports the
   * reason.
   */
  open(): void {
    if (this.#isOpening || this.isEnded) return;
    this.#isOpening = true;
    clearTimeout(this.#later);
    void this.#untilOpen();
  }

  async #untilOpen(): Promise<void> {
    while (!this.isEnded) {
      try {
        this.adopt(await this.#connect(this.#over.signal));
        return;
      } catch (error) {
        if (this.isEnded) return;
        if (!isShortage(error)) {
          this.#owner.onClose(null);
          return;
        }
        await pause(RETRY_MS, this.#over.signal);
      }
    }
  }

  /** Uses a connection that is already open. */
  adopt(connection: Connection): void {
    this.#isOpening = true;
    if (this.isEnded) {
      connection.socket.destroy();
      return;
    }
    this.#socket = connection.socket;
    for (const frame of this.#waiting) this.#socket.write(frame);
    this.#waiting = [];
    this.#waitingBytes = 0;
    connection.setOwner(this.#owner);
  }

  /** Writes a frame, and opens the connection first if necessary. */
  write(frame: Buffer): void {
    if (this.#socket !== undefined) {
      this.#socket.write(frame);
      if (this.#socket.writableLength > MAX_UNREAD_BYTES) this.#endUnread();
      return;
    }
    this.#waiting.push(frame);
    this.#waitingBytes += frame.length;
    if (this.#waitingBytes > MAX_UNREAD_BYTES) this.#endUnread();
    else this.open();
  }

  #endUnread(): void {
    this.#owner.onClose(brokenBy(new ProtocolError('it does not read its control connection')));
  }

  destroy(): void {
    clearTimeout(this.#later);
    this.#over.abort(OVER);
    this.#waiting = [];
    this.#socket?.destroy();
  }
}

/** Returns a handler that closes the data connection when the control connection fails. */
export function letGoOf({ socket }: Connection): (error: unknown) => never {
  return error => {
    socket.destroy();
    throw error;
  };
}

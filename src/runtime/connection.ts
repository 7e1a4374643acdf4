import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { deadlineExceeded, loggable, messageOf, ServiceError, unavailable } from '../core/error.ts';
import type { RuntimeEndpoint } from '../core/instance.ts';
import { frameOf } from '../lib/length-frames.ts';
import { connectProven } from '../lib/proven-tls.ts';
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
  readonly take: FrameReceiver['take'];
  /** Called at the end. `why` is the reason this side ended the connection; null when it just ended. */
  readonly onClose: (why: string | null) => void;
}

/** A socket to a runtime that has accepted HELLO. No more bytes are read until it has an owner. */
export interface Connection {
  readonly socket: net.Socket;
  readonly hello: HelloOk;
  own(owner: ConnectionOwner): void;
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
      const first = encodeFrame(FRAME.HELLO, 0, JSON.stringify({ version: PROTOCOL_VERSION, ...hello }));
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
      callback: (bytes: number, buffer: Uint8Array) => take((buffer as Buffer).subarray(0, bytes)),
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
        own: newOwner => {
          if (isClosed) {
            newOwner.onClose(why);
            return;
          }
          owner = newOwner;
          reader.receiver = { ...newOwner, giveUp };
          isReading = true;
          take(null);
          socket.resume();
        },
        drop: callId => reader.drop(callId),
      };
      signal.removeEventListener('abort', onAbort);
      // Later bytes belong to the owner, which is not set yet. They stay in the reader.
      isReading = false;
      reader.hold();
      resolve(connection);
    };
    const giveUp = () => breakOff(new ProtocolError('it did not finish a frame, and others needed the room'));
    const reader = new FrameReader({ admit: admitGreeting, take: greeting, giveUp });
    let isReading = true;
    const take = (chunk: Buffer | null): boolean => {
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

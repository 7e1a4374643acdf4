import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { deadlineExceeded, messageOf, ServiceError, unavailable } from '../core/error.ts';
import type { RuntimeEndpoint } from '../core/instance.ts';
import { connectUnix } from '../lib/unix-socket.ts';
import { encodeFrame, type Frame, FrameReader } from './frames.ts';
import { type CallError, FRAME, type HelloOk, PROTOCOL_VERSION } from './protocol.ts';

const CONNECT_RETRY_MS = 20;
/**
 * What all connections are read into: each read is taken from it before the next one begins. Node would else allocate as much for
 * every read, which costs more than the answer that comes with it.
 */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

/** A socket to a runtime that has taken our HELLO. One that ended before its owner has set `onClose` is `socket.destroyed`. */
export interface Connection {
  readonly socket: net.Socket;
  readonly hello: HelloOk;
  /** Frames that came right behind HELLO_OK, before the owner has set `onFrame`. */
  readonly early: Frame[];
  onFrame: (frame: Frame) => void;
  onClose: () => void;
}

/**
 * Connects and says HELLO, with `next` (a frame) behind it in the same write; keeps trying while nothing listens yet, until `signal` aborts. Fails with `unavailable` (refused by the
 * runtime, or ended) or `deadline_exceeded` (`signal`).
 */
export async function connect(
  endpoint: RuntimeEndpoint,
  hello: { secret: string; client: string; role: 'data' | 'control' },
  signal: AbortSignal,
  next?: Buffer,
): Promise<Connection> {
  for (;;) {
    if (signal.aborted) throw deadlineExceeded('the runtime did not answer in time');
    try {
      return await connectOnce(endpoint, hello, signal, next);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (error instanceof ServiceError) throw error;
      if (code !== 'ECONNREFUSED' && code !== 'ENOENT') {
        throw unavailable(`the runtime cannot be reached: ${messageOf(error)}`, { cause: error });
      }
      await delay(CONNECT_RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}

function connectOnce(
  endpoint: RuntimeEndpoint,
  hello: { secret: string; client: string; role: 'data' | 'control' },
  signal: AbortSignal,
  next: Buffer | undefined,
): Promise<Connection> {
  return new Promise((resolve, reject) => {
    const onread = {
      buffer: READ_BUFFER,
      callback: (bytes: number) => take(Buffer.from(READ_BUFFER.subarray(0, bytes))),
    };
    const socket =
      endpoint.kind === 'unix'
        ? connectUnix(endpoint.path, onread)
        : net.connect({ host: endpoint.host, port: endpoint.port, noDelay: true, onread });
    const fail = (error: Error) => {
      signal.removeEventListener('abort', onAbort);
      socket.destroy();
      reject(error);
    };
    const onAbort = () => fail(deadlineExceeded('the runtime did not answer in time'));
    signal.addEventListener('abort', onAbort, { once: true });
    let connection: Connection | undefined;
    const reader = new FrameReader(frame => {
      if (connection) {
        connection.onFrame(frame);
        return;
      }
      const message = JSON.parse(frame.payload.toString()) as HelloOk & CallError;
      if (frame.type !== FRAME.HELLO_OK) {
        fail(unavailable(`the runtime refused the connection: ${message.message}`));
        return;
      }
      signal.removeEventListener('abort', onAbort);
      const early: Frame[] = [];
      connection = { socket, hello: message, early, onFrame: frame => early.push(frame), onClose: () => undefined };
      resolve(connection);
    });
    const take = (chunk: Buffer): boolean => {
      try {
        reader.push(chunk);
      } catch (error) {
        fail(unavailable(`the runtime broke the protocol: ${messageOf(error)}`));
      }
      return true;
    };
    // Errors of an open connection are its close; the owner learns why from the sandbox.
    socket.on('error', error => fail(error));
    socket.on('close', () => {
      if (connection) connection.onClose();
      else fail(unavailable('the runtime closed the connection'));
    });
    const first = encodeFrame(FRAME.HELLO, 0, JSON.stringify({ version: PROTOCOL_VERSION, ...hello }));
    socket.write(next === undefined ? first : Buffer.concat([first, next]));
  });
}

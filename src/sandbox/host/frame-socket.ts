import type { Socket } from 'node:net';
import { messageOf, unavailable } from '../../core/error.ts';
import { connectUnix } from '../../lib/unix-socket.ts';

/** The largest frame that is read: one output of a command. */
const MAX_FRAME_BYTES = 64 * 1024 * 1024;

/**
 * Frames of `u32` length and bytes over a unix socket, as launchers and first processes of sandboxes speak them.
 * Frames that nobody waits for are kept; `next` answers null at the end of the connection.
 */
export class FrameSocket {
  readonly #socket: Socket;
  #chunks: Buffer[] = [];
  #bytes = 0;
  readonly #frames: Buffer[] = [];
  readonly #waiting: ((frame: Buffer | null) => void)[] = [];
  #ended = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', chunk => this.#push(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => this.#end());
  }

  /** Fails with `unavailable` when nobody listens there. */
  static connect(path: string): Promise<FrameSocket> {
    return new Promise((resolve, reject) => {
      const socket = connectUnix(path);
      const fail = (error: Error) =>
        reject(unavailable(`nothing answers at ${path}: ${error.message}`, { cause: error }));
      socket.once('error', fail);
      socket.once('connect', () => {
        socket.off('error', fail);
        resolve(new FrameSocket(socket));
      });
    });
  }

  /** Over a connection that was accepted. */
  static of(socket: Socket): FrameSocket {
    return new FrameSocket(socket);
  }

  get isEnded(): boolean {
    return this.#ended;
  }

  /** The process may end although this connection is open. */
  unref(): void {
    this.#socket.unref();
  }

  send(message: object): void {
    const body = Buffer.from(JSON.stringify(message));
    const head = Buffer.allocUnsafe(4);
    head.writeUInt32BE(body.length);
    this.#socket.write(Buffer.concat([head, body]));
  }

  /** The next frame, null once the connection has ended. */
  next(): Promise<Buffer | null> {
    const frame = this.#frames.shift();
    if (frame !== undefined) return Promise.resolve(frame);
    if (this.#ended) return Promise.resolve(null);
    return new Promise(resolve => this.#waiting.push(resolve));
  }

  /** The next frame as a JSON object, null at the end. Fails with `unavailable` when it is not one. */
  async nextMessage(): Promise<Record<string, unknown> | null> {
    const frame = await this.next();
    if (frame === null) return null;
    try {
      return JSON.parse(frame.toString()) as Record<string, unknown>;
    } catch (error) {
      throw unavailable(`the sandbox sent what is not JSON: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Says that nothing more will be sent; frames still come. */
  endSending(): void {
    this.#socket.end();
  }

  close(): void {
    this.#socket.destroy();
    this.#end();
  }

  #push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes >= 4) {
      const first = this.#chunks[0] as Buffer;
      const head = first.length >= 4 ? first : Buffer.concat(this.#chunks, this.#bytes);
      const length = head.readUInt32BE(0);
      if (length > MAX_FRAME_BYTES) {
        this.close();
        return;
      }
      if (this.#bytes < length + 4) return;
      const buffer = this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#bytes);
      this.#chunks = [buffer.subarray(length + 4)];
      this.#bytes -= length + 4;
      this.#deliver(buffer.subarray(4, length + 4));
    }
  }

  #deliver(frame: Buffer): void {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(frame);
    else this.#frames.push(frame);
  }

  #end(): void {
    this.#ended = true;
    for (const waiting of this.#waiting.splice(0)) waiting(null);
  }
}

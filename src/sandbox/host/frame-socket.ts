import type { Socket } from 'node:net';
import { messageOf, unavailable } from '../../core/error.ts';
import { FrameJoiner, frameOf } from '../../lib/length-frames.ts';
import { connectUnix } from '../../lib/unix-socket.ts';

/** The largest frame that is read: one output of a command. */
const MAX_FRAME_BYTES = 64 * 1024 * 1024;

/**
 * Frames of `u32` length and bytes over a unix socket, the protocol of zygotes and inits.
 * Frames that arrive without a waiting `next` are kept. `next` returns null at the end of the connection.
 */
export class FrameSocket {
  readonly #socket: Socket;
  readonly #joiner = new FrameJoiner(MAX_FRAME_BYTES);
  readonly #frames: Buffer[] = [];
  readonly #waiting: ((frame: Buffer | null) => void)[] = [];
  #ended = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', chunk => this.#push(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => this.#end());
  }

  /** Connects to the socket at `path`. Fails with `unavailable` when nothing listens there. */
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

  /** Wraps an accepted connection. */
  static of(socket: Socket): FrameSocket {
    return new FrameSocket(socket);
  }

  get isEnded(): boolean {
    return this.#ended;
  }

  /** Lets the process exit while this connection is open. */
  unref(): void {
    this.#socket.unref();
  }

  /**
   * Sends messages in one write.
   * If the peer refused the first message at once, a second write would fail and the answer would be lost.
   */
  send(...messages: readonly object[]): void {
    const frames = messages.map(message => frameOf(Buffer.from(JSON.stringify(message))));
    this.#socket.write(frames.length === 1 ? (frames[0] as Buffer) : Buffer.concat(frames));
  }

  /** Returns the next frame; null once the connection has ended. */
  next(): Promise<Buffer | null> {
    const frame = this.#frames.shift();
    if (frame !== undefined) return Promise.resolve(frame);
    if (this.#ended) return Promise.resolve(null);
    return new Promise(resolve => this.#waiting.push(resolve));
  }

  /**
   * Returns the next frame as a JSON object; null at the end. Fails with `unavailable` when the frame is not
   * JSON.
   */
  async nextMessage(): Promise<Record<string, unknown> | null> {
    const frame = await this.next();
    if (frame === null) return null;
    try {
      return JSON.parse(frame.toString()) as Record<string, unknown>;
    } catch (error) {
      throw unavailable(`the sandbox sent text that is not JSON: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Resolves at the end of the connection; drops all frames before it. */
  async drain(): Promise<void> {
    while ((await this.next()) !== null);
  }

  /** Closes the sending direction; frames still arrive. */
  endSending(): void {
    this.#socket.end();
  }

  close(): void {
    this.#socket.destroy();
    this.#end();
  }

  #push(chunk: Buffer): void {
    this.#joiner.push(chunk);
    try {
      for (let frame = this.#joiner.shift(); frame !== null; frame = this.#joiner.shift()) this.#deliver(frame.body);
    } catch {
      // The frame is too long: nothing after it can be read.
      this.close();
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

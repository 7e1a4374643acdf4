import type { Socket } from 'node:net';
import { deadlineExceeded, type ErrorCode, ServiceError, unavailable } from '../../core/error.ts';
import { connectUnix } from '../../lib/unix-socket.ts';

/** What an answer before the streams may weigh: a list of files. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** How long whoever works inside may take to answer. */
const ANSWER_TIMEOUT_MS = 30_000;

export type AccessAnswer = Readonly<Record<string, unknown>>;

/** Opens a way into a sandbox for one request (`runtimes/python/rookery_launcher/{files,dial,stream}.py` say which there are). */
export type OpenWay = (
  way: 'exec' | 'dial' | 'files',
  request: object,
  signal: AbortSignal,
) => Promise<AccessConnection>;

/**
 * One way into a sandbox over a unix socket: a request, JSON answers in frames of `u32` length and bytes, and then whatever the
 * request is about, for which `socket` is there. Aborting the signal destroys the socket with `deadline_exceeded`.
 */
export class AccessConnection {
  /** What came first. */
  answer: AccessAnswer = {};
  readonly socket: Socket;
  readonly #signal: AbortSignal;
  #cause: Error | null = null;

  private constructor(socket: Socket, signal: AbortSignal) {
    this.socket = socket;
    this.#signal = signal;
    socket.allowHalfOpen = true;
    socket.on('error', error => {
      this.#cause ??= error;
    });
    const abort = () => socket.destroy(deadlineExceeded('what was asked of the sandbox was given up by its caller'));
    signal.addEventListener('abort', abort, { once: true });
    socket.once('close', () => signal.removeEventListener('abort', abort));
    if (signal.aborted) abort();
  }

  /**
   * Connects to `path`, sends the messages and waits for the answer. Fails with what is refused there, and with `unavailable` when
   * nobody answers.
   */
  static async open(path: string, messages: readonly object[], signal: AbortSignal): Promise<AccessConnection> {
    const connection = new AccessConnection(connectUnix(path), signal);
    connection.socket.write(Buffer.concat(messages.map(message => frameOf(Buffer.from(JSON.stringify(message))))));
    try {
      connection.answer = await connection.next();
      return connection;
    } catch (error) {
      connection.socket.destroy();
      throw error;
    }
  }

  send(message: object): void {
    this.socket.write(frameOf(Buffer.from(JSON.stringify(message))));
  }

  /** The next answer; what follows it stays in the socket. Fails with what it refuses, or with `failure` when there is none. */
  async next(timeoutMs = ANSWER_TIMEOUT_MS): Promise<AccessAnswer> {
    const frame = await this.#frame(timeoutMs);
    let answer: AccessAnswer;
    try {
      answer = JSON.parse(frame.toString()) as AccessAnswer;
    } catch (error) {
      throw unavailable('the sandbox answered what is not JSON', { cause: error });
    }
    if (answer.ok === true) return answer;
    throw new ServiceError(answer.code as ErrorCode, String(answer.message));
  }

  /** Why the connection ended, as far as it is known. */
  failure(): ServiceError {
    if (this.#cause instanceof ServiceError) return this.#cause;
    if (this.#signal.aborted) return deadlineExceeded('what was asked of the sandbox was given up by its caller');
    return unavailable('the sandbox ended, or what worked for this in it', { cause: this.#cause });
  }

  #frame(timeoutMs: number): Promise<Buffer> {
    const { socket } = this;
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      let needed = 4;
      const settle = () => {
        clearTimeout(timer);
        socket.off('data', take).off('end', fail).off('close', fail);
      };
      const fail = () => {
        settle();
        reject(this.failure());
      };
      const take = (chunk: Buffer) => {
        chunks.push(chunk);
        bytes += chunk.length;
        if (bytes < needed) return;
        const all = chunks.length === 1 ? chunk : Buffer.concat(chunks, bytes);
        chunks.splice(0, chunks.length, all);
        needed = 4 + all.readUInt32BE(0);
        if (needed > MAX_ANSWER_BYTES) return fail();
        if (bytes < needed) return;
        settle();
        socket.pause();
        if (bytes > needed) socket.unshift(all.subarray(needed));
        resolve(all.subarray(4, needed));
      };
      const timer = setTimeout(() => {
        settle();
        reject(unavailable(`the sandbox did not answer within ${timeoutMs / 1000} s`));
      }, timeoutMs);
      if (socket.destroyed) return fail();
      socket.on('data', take).once('end', fail).once('close', fail);
      socket.resume();
    });
  }
}

/** A frame: length, then the bytes. */
export function frameOf(body: Buffer): Buffer {
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32BE(body.length);
  return Buffer.concat([head, body]);
}

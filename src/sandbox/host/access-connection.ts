import type { Socket } from 'node:net';
import { deadlineExceeded, type ErrorCode, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { FrameJoiner, frameOf } from '../../lib/length-frames.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { connectUnix } from '../../lib/unix-socket.ts';

/** What an answer before the streams may weigh: a list of files. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** How long whoever works inside may take to answer. */
const ANSWER_TIMEOUT_MS = 30_000;

export type AccessAnswer = Readonly<Record<string, unknown>>;

/** Opens a way into a sandbox for one request (`runtimes/python/rookery_zygote/{files,dial,stream}.py` say which there are). */
export type OpenWay = (
  way: 'exec' | 'dial' | 'files',
  request: object,
  signal: AbortSignal,
) => Promise<AccessConnection>;

/** Messages as they go over such a connection. */
export function framesOf(messages: readonly object[]): Buffer {
  return Buffer.concat(messages.map(message => frameOf(Buffer.from(JSON.stringify(message)))));
}

/**
 * One way into a sandbox over a socket: a request, JSON answers in frames of `u32` length and bytes, and then whatever the
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
    const giveUp = () => socket.destroy(deadlineExceeded('what was asked of the sandbox was given up by its caller'));
    socket.once('close', onAbort(signal, giveUp));
  }

  /**
   * Connects to `path`, sends the messages and waits for the answer. Fails with what is refused there, and with `unavailable` when
   * nobody answers.
   */
  static async open(path: string, messages: readonly object[], signal: AbortSignal): Promise<AccessConnection> {
    const socket = connectUnix(path);
    socket.write(framesOf(messages));
    return await AccessConnection.over(socket, signal);
  }

  /** As `open`, over a connection on which the messages have been sent. */
  static async over(socket: Socket, signal: AbortSignal, timeoutMs?: number): Promise<AccessConnection> {
    const connection = new AccessConnection(socket, signal);
    try {
      connection.answer = await connection.next(timeoutMs);
      return connection;
    } catch (error) {
      connection.socket.destroy();
      throw error;
    }
  }

  send(message: object): void {
    this.socket.write(frameOf(Buffer.from(JSON.stringify(message))));
  }

  /** The next answer; later bytes stay in the socket. Fails with what it refuses, or with `failure` when there is none; the connection is of no use then. */
  async next(timeoutMs = ANSWER_TIMEOUT_MS): Promise<AccessAnswer> {
    const frame = await this.frame(timeoutMs);
    let answer: AccessAnswer;
    try {
      answer = JSON.parse(frame.toString()) as AccessAnswer;
    } catch (error) {
      throw unavailable('the sandbox answered what is not JSON', { cause: error });
    }
    if (answer.ok === true) return answer;
    throw new ServiceError(answer.code as ErrorCode, String(answer.message));
  }

  /** The next frame, whatever is in it. Fails as `next`. */
  async frame(timeoutMs = ANSWER_TIMEOUT_MS): Promise<Buffer> {
    const late = () => unavailable(`the sandbox did not answer within ${timeoutMs / 1000} s`);
    return await within(this.#frame(), timeoutMs, late);
  }

  /** Why the connection ended, as far as it is known. */
  failure(): ServiceError {
    if (this.#cause instanceof ServiceError) return this.#cause;
    if (this.#signal.aborted) return deadlineExceeded('what was asked of the sandbox was given up by its caller');
    return unavailable('the sandbox ended, or what worked for this in it', { cause: this.#cause });
  }

  #frame(): Promise<Buffer> {
    const { socket } = this;
    const joiner = new FrameJoiner(MAX_ANSWER_BYTES);
    return new Promise((resolve, reject) => {
      const settle = () => socket.off('data', take).off('end', fail).off('close', fail);
      const fail = () => {
        settle();
        reject(this.failure());
      };
      const take = (chunk: Buffer) => {
        joiner.push(chunk);
        let frame: ReturnType<FrameJoiner['take']>;
        try {
          frame = joiner.take();
        } catch {
          return fail();
        }
        if (frame === null) return;
        settle();
        socket.pause();
        const rest = joiner.rest();
        if (rest.length > 0) socket.unshift(rest);
        resolve(frame.body);
      };
      if (socket.destroyed) return fail();
      socket.on('data', take).once('end', fail).once('close', fail);
      socket.resume();
    });
  }
}

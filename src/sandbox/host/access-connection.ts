import type { Socket } from 'node:net';
import { deadlineExceeded, type ErrorCode, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { FrameJoiner, frameOf } from '../../lib/length-frames.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { connectUnix } from '../../lib/unix-socket.ts';

/** Maximum size of an answer that precedes the streams; the largest is a list of files. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** Time limit for an answer of the process inside. */
const ANSWER_TIMEOUT_MS = 30_000;

export type AccessAnswer = Readonly<Record<string, unknown>>;

/**
 * Opens access to a sandbox for one request. `runtimes/python/rookery_zygote/{files,dial,stream}.py` serve
 * the kinds.
 */
export type OpenAccess = (
  kind: 'exec' | 'dial' | 'files' | 'account' | 'watch' | 'processes',
  request: object,
  signal: AbortSignal,
) => Promise<AccessConnection>;

/** Encodes messages as frames for an access connection. */
export function framesOf(messages: readonly object[]): Buffer {
  return Buffer.concat(messages.map(message => frameOf(Buffer.from(JSON.stringify(message)))));
}

/**
 * A connection for one access request: the request, JSON answers in frames of `u32` length and bytes, then
 * raw bytes.
 * The raw bytes of `socket` depend on the request. Aborting the signal destroys the socket with
 * `deadline_exceeded`.
 */
export class AccessConnection {
  /** The first answer. */
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
    const giveUp = () => socket.destroy(deadlineExceeded('the caller cancelled the request to the sandbox'));
    socket.once('close', onAbort(signal, giveUp));
  }

  /**
   * Connects to `path`, sends the messages and waits for the answer.
   * Fails with the refusal that the answer states, and with `unavailable` when no answer arrives.
   */
  static async open(path: string, messages: readonly object[], signal: AbortSignal): Promise<AccessConnection> {
    const socket = connectUnix(path);
    socket.write(framesOf(messages));
    return await AccessConnection.over(socket, signal);
  }

  /**
   * Waits for the first answer on a connection over which the messages were sent already. Fails like `open`.
   */
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

  /**
   * Returns the next answer; later bytes stay in the socket.
   * Fails with the refusal that the answer states, or with `failure()` without an answer. The connection is
   * unusable then.
   */
  async next(timeoutMs = ANSWER_TIMEOUT_MS): Promise<AccessAnswer> {
    const frame = await this.frame(timeoutMs);
    let answer: AccessAnswer;
    try {
      answer = JSON.parse(frame.toString()) as AccessAnswer;
    } catch (error) {
      throw unavailable('the answer of the sandbox is not JSON', { cause: error });
    }
    if (answer.ok === true) return answer;
    throw new ServiceError(answer.code as ErrorCode, String(answer.message));
  }

  /** Returns the next frame without decoding it. Fails like `next`. */
  async frame(timeoutMs = ANSWER_TIMEOUT_MS): Promise<Buffer> {
    const late = () => unavailable(`the sandbox did not answer within ${timeoutMs / 1000} s`);
    return await within(this.#frame(), timeoutMs, late);
  }

  /** Returns the most specific known reason for the end of the connection. */
  failure(): ServiceError {
    if (this.#cause instanceof ServiceError) return this.#cause;
    if (this.#signal.aborted) return deadlineExceeded('the caller cancelled the request to the sandbox');
    return unavailable('the sandbox ended, or its process that served the request ended', { cause: this.#cause });
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
        let frame: ReturnType<FrameJoiner['shift']>;
        try {
          frame = joiner.shift();
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

/**
 * Adds bytes of an opened stream, and calls `receive` with the kind and the payload of each complete frame.
 * Destroys the socket when a frame is too long or shorter than its kind requires: nothing after it can be
 * read.
 */
export function receiveFrames(
  socket: Socket,
  received: FrameJoiner,
  chunk: Buffer,
  receive: (kind: number, payload: Buffer) => void,
): void {
  received.push(chunk);
  try {
    for (let frame = received.shift(); frame !== null; frame = received.shift()) {
      receive(frame.body.readUInt8(0), frame.body.subarray(1));
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    socket.destroy();
  }
}

import { Readable, Writable } from 'node:stream';
import type { ServiceError } from '../../core/error.ts';
import { FrameJoiner, frameOf } from '../../lib/length-frames.ts';
import type { OpenExec, OpenExecRequest, TerminalSize } from '../access.ts';
import { type AccessConnection, type OpenAccess, receiveFrames } from './access-connection.ts';

/** The first byte of each frame, as in `runtimes/native/src/stream.c`. */
const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const STDIN_END = 3;
const RESIZE = 4;
const KILL = 5;
const CREDIT = 6;
const EXIT = 7;
/** Maximum number of unacknowledged bytes of a stream. */
const WINDOW_BYTES = 256 * 1024;
const CREDIT_STEP_BYTES = WINDOW_BYTES / 4;
const MAX_CHUNK_BYTES = 64 * 1024;
const MAX_FRAME_BYTES = WINDOW_BYTES + 16;

/** Starts a command in a sandbox over a connection to its init. Streams have credit in both directions. */
export async function openExec(
  openAccess: OpenAccess,
  request: OpenExecRequest,
  signal: AbortSignal,
): Promise<OpenExec> {
  return new RemoteExec(await openAccess('exec', request, signal), request.terminal !== null);
}

class RemoteExec implements OpenExec {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly ended: Promise<number>;
  readonly #connection: AccessConnection;
  readonly #input: Input;
  readonly #outputs: ReadonlyMap<number, Output>;
  readonly #hasTerminal: boolean;
  #end: (code: number) => void = () => undefined;
  #fail: (error: ServiceError) => void = () => undefined;
  #hasEnded = false;
  readonly #received = new FrameJoiner(MAX_FRAME_BYTES);

  constructor(connection: AccessConnection, hasTerminal: boolean) {
    this.#connection = connection;
    this.#hasTerminal = hasTerminal;
    const send = (kind: number, payload: Buffer) => this.#send(kind, payload);
    this.stdin = this.#input = new Input(send);
    const stdout = new Output(STDOUT, send);
    const stderr = new Output(STDERR, send);
    this.stdout = stdout;
    this.stderr = stderr;
    this.#outputs = new Map([
      [STDOUT, stdout],
      [STDERR, stderr],
    ]);
    if (hasTerminal) stderr.end();
    this.ended = new Promise((resolve, reject) => {
      this.#end = resolve;
      this.#fail = reject;
    });
    this.ended.catch(() => undefined);
    const { socket } = connection;
    socket.on('data', (chunk: Buffer) =>
      receiveFrames(socket, this.#received, chunk, (kind, payload) => this.#receive(kind, payload)),
    );
    socket.once('end', () => socket.destroy());
    socket.once('close', () => this.#finish(null));
    if (socket.destroyed) this.#finish(null);
    else socket.resume();
  }

  resize({ columns, rows }: TerminalSize): void {
    if (!this.#hasTerminal) return;
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt16BE(columns, 0);
    payload.writeUInt16BE(rows, 2);
    this.#send(RESIZE, payload);
  }

  kill(): void {
    this.#send(KILL, EMPTY);
  }

  #send(kind: number, payload: Buffer): void {
    if (this.#hasEnded || this.#connection.socket.destroyed) return;
    this.#connection.socket.write(frameOf(Buffer.of(kind), payload));
  }

  #receive(kind: number, payload: Buffer): void {
    if (kind === CREDIT) this.#input.addCredit(payload.readUInt32BE(1));
    else if (kind === EXIT) this.#finish(payload.readInt32BE(0));
    else this.#outputs.get(kind)?.accept(payload);
  }

  /** Completes the command. `code` is null when the connection ended before an exit code arrived. */
  #finish(code: number | null): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#input.stop();
    if (code === null) {
      const error = this.#connection.failure();
      for (const output of this.#outputs.values()) output.destroy(error);
      this.#fail(error);
      this.#input.destroy(error);
    } else {
      for (const output of this.#outputs.values()) output.end();
      this.#end(code);
    }
    this.#connection.socket.destroy();
  }
}

const EMPTY = Buffer.alloc(0);

/**
 * The command's input: sends as much as its credit allows.
 * After the command's end, the stream accepts and drops all bytes.
 */
class Input extends Writable {
  readonly #send: (kind: number, payload: Buffer) => void;
  #credit = WINDOW_BYTES;
  #waiting: (() => void) | null = null;
  #isStopped = false;

  constructor(send: (kind: number, payload: Buffer) => void) {
    super({ highWaterMark: MAX_CHUNK_BYTES });
    this.#send = send;
    this.on('error', () => undefined);
  }

  addCredit(bytes: number): void {
    this.#credit += bytes;
    this.#wake();
  }

  stop(): void {
    this.#isStopped = true;
    this.#wake();
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.();
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    if (this.#isStopped || chunk.length === 0) {
      done();
      return;
    }
    if (this.#credit === 0) {
      this.#waiting = () => this._write(chunk, encoding, done);
      return;
    }
    const now = chunk.subarray(0, Math.min(this.#credit, MAX_CHUNK_BYTES));
    this.#credit -= now.length;
    this.#send(STDIN, now);
    if (now.length === chunk.length) done();
    else this._write(chunk.subarray(now.length), encoding, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#send(STDIN_END, EMPTY);
    done();
  }
}

/**
 * The command's output. Returns credit for the bytes that fit the reader's buffer; without a reader, drops
 * all bytes.
 */
class Output extends Readable {
  readonly #stream: number;
  readonly #send: (kind: number, payload: Buffer) => void;
  #uncredited = 0;
  #hasEnded = false;

  constructor(stream: number, send: (kind: number, payload: Buffer) => void) {
    super({ highWaterMark: MAX_CHUNK_BYTES });
    this.#stream = stream;
    this.#send = send;
    this.on('error', () => undefined);
  }

  accept(data: Buffer): void {
    this.#uncredited += data.length;
    if (this.destroyed || this.push(data)) this._read();
  }

  /** Ends the stream: no bytes follow. */
  end(): void {
    if (!this.#hasEnded && !this.destroyed) this.push(null);
    this.#hasEnded = true;
  }

  override _read(): void {
    if (this.#uncredited < CREDIT_STEP_BYTES) return;
    const payload = Buffer.allocUnsafe(5);
    payload.writeUInt8(this.#stream, 0);
    payload.writeUInt32BE(this.#uncredited, 1);
    this.#uncredited = 0;
    this.#send(CREDIT, payload);
  }
}

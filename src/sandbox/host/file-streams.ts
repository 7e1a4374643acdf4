import type { Socket } from 'node:net';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { frameHead } from '../../lib/length-frames.ts';
import type { OpenFile } from '../access.ts';
import type { AccessAnswer, AccessConnection } from './access-connection.ts';

/** The longest delay that a timer accepts: the client's signal is the bound. */
const MAX_WAIT_MS = 2 ** 31 - 1;
const ignore = () => undefined;

/** Returns the file that the answer of `connection` describes. */
export function openedFile(connection: AccessConnection, path: string): OpenFile {
  const { sizeBytes, modifiedAtMs, mode } = connection.answer as Record<string, number>;
  return new RemoteFile(connection, path, sizeBytes ?? 0, modifiedAtMs ?? 0, mode ?? 0);
}

/**
 * Sends `content` over the connection that `open` returns, and returns the answer that follows it. Always
 * consumes or destroys `content`, and closes the connection.
 */
export async function upload(
  open: () => Promise<AccessConnection>,
  path: string,
  content: Readable,
): Promise<AccessAnswer> {
  // `content` may fail before the pipeline reads it; without a listener that error would end the process.
  content.on('error', ignore);
  try {
    const connection = await open();
    try {
      return await send(connection, content);
    } finally {
      connection.socket.destroy();
    }
  } catch (error) {
    content.destroy();
    if (error instanceof ServiceError) throw error;
    throw unavailable(`the content of ${path} was interrupted: ${messageOf(error)}`, { cause: error });
  }
}

async function send(connection: AccessConnection, content: Readable): Promise<AccessAnswer> {
  if (content.errored !== null) throw content.errored;
  // The sandbox may refuse in the middle of the upload. The rest is not sent then.
  const answer = connection.next(MAX_WAIT_MS);
  const sink = new Upload(connection.socket);
  answer.catch(error => sink.destroy(error));
  await pipeline(content, sink);
  return await answer;
}

/** A file that a process inside has opened and sends in one range. */
class RemoteFile implements OpenFile {
  readonly sizeBytes: number;
  readonly modifiedAtMs: number;
  readonly mode: number;
  readonly #connection: AccessConnection;
  readonly #path: string;

  constructor(connection: AccessConnection, path: string, sizeBytes: number, modifiedAtMs: number, mode: number) {
    this.#connection = connection;
    this.#path = path;
    this.sizeBytes = sizeBytes;
    this.modifiedAtMs = modifiedAtMs;
    this.mode = mode;
  }

  read(start: number, end: number): Readable {
    this.#connection.send({ start, end });
    return new Download(this.#connection, this.#path, Math.max(0, Math.min(end, this.sizeBytes) - start));
  }

  close(): void {
    this.#connection.socket.destroy();
  }
}

/** Reads exactly `sizeBytes` bytes from a connection, or fails. */
class Download extends Readable {
  readonly #connection: AccessConnection;

  constructor(connection: AccessConnection, path: string, sizeBytes: number) {
    super({ highWaterMark: 256 * 1024 });
    this.#connection = connection;
    const { socket } = connection;
    let missing = sizeBytes;
    const end = () => {
      if (missing === 0) this.push(null);
      else if (!this.destroyed) this.destroy(this.#failure(path));
      socket.destroy();
    };
    this.on('error', ignore);
    socket.on('data', (chunk: Buffer) => {
      missing -= chunk.length;
      if (!this.push(chunk)) socket.pause();
    });
    socket.once('end', end).once('close', () => {
      if (!this.readableEnded && missing > 0) end();
    });
    if (socket.destroyed) end();
  }

  override _read(): void {
    this.#connection.socket.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#connection.socket.destroy();
    done(error);
  }

  #failure(path: string): Error {
    const failure = this.#connection.failure();
    if (failure.code !== 'unavailable') return failure;
    return unavailable(`${path} became shorter while it was read, or the sandbox ended`, { cause: failure });
  }
}

/** Sends content in frames; an empty frame marks the end. */
class Upload extends Writable {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    super({ highWaterMark: 256 * 1024, decodeStrings: true });
    this.#socket = socket;
    this.on('error', ignore);
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    if (chunk.length === 0) {
      done();
      return;
    }
    this.#socket.cork();
    this.#socket.write(frameHead(chunk.length));
    // The sandbox reports a refusal as an answer, so a socket error adds no information.
    this.#socket.write(chunk, error => {
      if (!error) done();
    });
    this.#socket.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.write(frameHead(0), error => {
      if (!error) done();
    });
  }
}

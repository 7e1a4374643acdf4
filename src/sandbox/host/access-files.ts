import type { Socket } from 'node:net';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { frameHead } from '../../lib/length-frames.ts';
import type {
  FileEntry,
  FileList,
  ListFilesOptions,
  MakeDirectoryOptions,
  OpenFile,
  SandboxAccess,
  WriteFileOptions,
  WrittenFile,
} from '../access.ts';
import type { AccessConnection, OpenWay } from './access-connection.ts';
import { UnsupportedFiles } from './unsupported-files.ts';

const MAX_MODE = 0o7777;
/** The longest delay that a timer accepts: the client's signal is the bound. */
const MAX_WAIT_MS = 2 ** 31 - 1;
const ignore = () => undefined;

export async function openFile(openWay: OpenWay, path: string, signal: AbortSignal): Promise<OpenFile> {
  const connection = await openWay('files', { op: 'open', path }, signal);
  const { sizeBytes, modifiedAtMs, mode } = connection.answer as Record<string, number>;
  return new RemoteFile(connection, path, sizeBytes ?? 0, modifiedAtMs ?? 0, mode ?? 0);
}

/** Writes `content` to `path` inside. Always consumes or destroys `content`. */
export async function writeFile(
  openWay: OpenWay,
  path: string,
  options: WriteFileOptions,
  content: Readable,
  signal: AbortSignal,
): Promise<WrittenFile> {
  // `content` may fail before the pipeline reads it; without a listener that error would end the process.
  content.on('error', ignore);
  try {
    const connection = await openWay('files', { op: 'write', path, mode: modeOf(options.mode) }, signal);
    try {
      return await send(connection, content);
    } finally {
      connection.socket.destroy();
    }
  } catch (error) {
    content.destroy();
    if (error instanceof ServiceError) throw error;
    throw unavailable(`the content of ${path} broke off: ${messageOf(error)}`, { cause: error });
  }
}

async function send(connection: AccessConnection, content: Readable): Promise<WrittenFile> {
  if (content.errored !== null) throw content.errored;
  // The sandbox may refuse in the middle of the upload. The rest is not sent then.
  const answer = connection.next(MAX_WAIT_MS);
  const upload = new Upload(connection.socket);
  answer.catch(error => upload.destroy(error));
  await pipeline(content, upload);
  return { sizeBytes: (await answer).sizeBytes as number };
}

export async function listFiles(
  openWay: OpenWay,
  path: string,
  { maxDepth, maxEntries }: ListFilesOptions,
  signal: AbortSignal,
): Promise<FileList> {
  const connection = await openWay('files', { op: 'list', path, maxDepth, maxEntries }, signal);
  connection.socket.destroy();
  const { entries, truncated } = connection.answer;
  return { entries: (entries as EntryTuple[]).map(entryOf), truncated: truncated === true };
}

export async function makeDirectory(
  openWay: OpenWay,
  path: string,
  { mode, recursive }: MakeDirectoryOptions,
  signal: AbortSignal,
): Promise<void> {
  const connection = await openWay('files', { op: 'mkdir', path, mode: modeOf(mode), recursive }, signal);
  connection.socket.destroy();
}

type EntryTuple = readonly [path: string, type: FileEntry['type'], size: number, mode: number, modifiedAtMs: number];

function entryOf([path, type, sizeBytes, mode, modifiedAtMs]: EntryTuple): FileEntry {
  return { path, type, sizeBytes, mode, modifiedAtMs };
}

function modeOf(mode: number | null): number | null {
  return mode === null ? null : mode & MAX_MODE;
}

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

type Files = Pick<SandboxAccess, 'openFile' | 'writeFile' | 'listFiles' | 'makeDirectory'>;

/** The file operations of a sandbox over access connections, which each driver opens in its own way. */
export abstract class FileAccess extends UnsupportedFiles implements Files {
  protected abstract readonly openWay: OpenWay;

  openFile(path: string, signal: AbortSignal): Promise<OpenFile> {
    return openFile(this.openWay, path, signal);
  }

  writeFile(path: string, options: WriteFileOptions, content: Readable, signal: AbortSignal): Promise<WrittenFile> {
    return writeFile(this.openWay, path, options, content, signal);
  }

  listFiles(path: string, options: ListFilesOptions, signal: AbortSignal): Promise<FileList> {
    return listFiles(this.openWay, path, options, signal);
  }

  makeDirectory(path: string, options: MakeDirectoryOptions, signal: AbortSignal): Promise<void> {
    return makeDirectory(this.openWay, path, options, signal);
  }
}

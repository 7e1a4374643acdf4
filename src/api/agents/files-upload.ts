import { Transform, type TransformCallback } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyHeaders, type BusboyInstance } from '@fastify/busboy';
import type { FastifyRequest } from 'fastify';
import { invalidRequest, messageOf, notFound, ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';

/** Largest multipart body apart from its file. A longer body has a file that is too large. */
const MAX_AROUND_BYTES = 64 * 1024;
const MAX_FIELD_BYTES = 8 * 1024;
const MAX_PARTS = 8;
/** Character with which the multipart parser replaces bytes that are not UTF-8. */
const REPLACED = '\ufffd';

export interface ReceivedFile {
  readonly path: string;
  readonly sizeBytes: number;
}

/**
 * Reads a multipart body (`path`, `mode?`, then `file`) and streams its file into the sandbox.
 * The file appears at its path only after the whole body was received and valid.
 * Fails with `invalid_request`, 413 (`TooLarge`), or as `writeFile` does.
 */
export async function receiveFile(
  request: FastifyRequest,
  access: SandboxAccess,
  signal: AbortSignal,
): Promise<ReceivedFile> {
  if (Number(request.headers['content-length'] ?? 0) > LIMITS.fileUploadBytes + MAX_AROUND_BYTES) throw tooLarge();
  const upload = new Upload(request);
  try {
    const { path, mode, fileName, content } = await upload.file;
    const target = await targetOf(access, path, fileName, signal);
    const { sizeBytes } = await access.writeFile(target, { mode }, content, signal);
    return { path: target, sizeBytes };
  } catch (error) {
    upload.abandon();
    // An invalid body is the cause of the failed write, so its error takes precedence.
    throw upload.failure ?? withHint(error);
  }
}

interface UploadedFile {
  readonly path: string;
  readonly mode: number | null;
  readonly fileName: string;
  /** Ends after the whole body was received and valid. */
  readonly content: Transform;
}

/** A multipart body. */
class Upload {
  /** Resolves when the part of the file begins. */
  readonly file: Promise<UploadedFile>;
  /** The reason why the body is invalid. */
  failure: Error | undefined;
  readonly #parser: BusboyInstance;
  readonly #fields = new Map<string, string>();
  #resolve!: (file: UploadedFile) => void;
  #reject!: (error: Error) => void;
  #content: FileContent | undefined;

  constructor({ raw, headers }: FastifyRequest) {
    this.file = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#parser = newParser(headers as BusboyHeaders);
    this.#parser
      .on('field', (name, value, _nameCut, isCut) => this.#receiveField(name, value, isCut))
      .on('file', (name, stream, fileName) => this.#receiveFile(name, stream, fileName))
      .on('filesLimit', () => this.#fail(wrong('it has more than one file')))
      .on('fieldsLimit', () => this.#fail(wrong('it has too many fields')))
      .on('partsLimit', () => this.#fail(wrong('it has too many parts')))
      .on('error', (error: unknown) => this.#fail(wrong(messageOf(error))))
      .on('finish', () => {
        if (this.#content) this.#content.allowEnd();
        else this.#fail(wrong('the field file is missing'));
      });
    raw.once('close', () => {
      if (!raw.complete) this.#fail(wrong('the caller went away'));
    });
    raw.pipe(this.#parser);
  }

  /** Stops reading the file. */
  abandon(): void {
    this.#content?.destroy();
  }

  #receiveField(name: string, value: string, isCut: boolean): void {
    if (this.#content) this.#fail(wrong(`the field ${name} must stand before the file`));
    else if (isCut) this.#fail(wrong(`the field ${name} is too long`));
    else if (this.#fields.has(name)) this.#fail(wrong(`the field ${name} must be given once`));
    else this.#fields.set(name, value);
  }

  #receiveFile(name: string, stream: BusboyFileStream, fileName: string | undefined): void {
    // The parser reports errors of the body too.
    stream.on('error', () => undefined);
    try {
      if (this.failure) throw this.failure;
      if (name !== 'file') throw wrong(`the file must be in the field file, not in ${JSON.stringify(name)}`);
      const path = this.#fields.get('path');
      if (path === undefined) throw wrong('the field path must stand before the file');
      const problem = pathProblem(path);
      if (problem !== undefined) throw wrong(`path ${problem}`);
      if (path.includes(REPLACED)) throw wrong('path must be UTF-8');
      const mode = readMode(this.#fields.get('mode'), text =>
        wrong(`mode must be ${MODE_TEXT}, got ${JSON.stringify(text)}`),
      );
      this.#content = new FileContent(stream);
      this.#content.on('error', error => {
        // All other errors come from the target, which reports them itself.
        if (error instanceof TooLarge) this.#fail(error);
      });
      this.#resolve({ path, mode, fileName: fileName ?? '', content: stream.pipe(this.#content) });
    } catch (error) {
      stream.resume();
      this.#fail(error as Error);
    }
  }

  #fail(error: Error): void {
    this.failure ??= error;
    this.#reject(this.failure);
    this.#content?.destroy(this.failure);
  }
}

/** Passes the bytes of the file up to the size limit. Ends only after the whole body was read. */
class FileContent extends Transform {
  #bytes = 0;
  #isAllowed = false;
  #onAllowed: (() => void) | undefined;
  readonly #source: BusboyFileStream;

  constructor(source: BusboyFileStream) {
    super({ highWaterMark: 256 * 1024 });
    this.#source = source;
  }

  allowEnd(): void {
    this.#isAllowed = true;
    this.#onAllowed?.();
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#bytes += chunk.length;
    if (this.#bytes > LIMITS.fileUploadBytes) done(tooLarge());
    else done(null, chunk);
  }

  override _flush(done: TransformCallback): void {
    if (this.#isAllowed) done();
    else this.#onAllowed = done;
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    // The parser continues only when the part is read.
    this.#source.unpipe(this);
    this.#source.resume();
    done(error);
  }
}

function newParser(headers: BusboyHeaders): BusboyInstance {
  const type = headers['content-type'] ?? '';
  if (!/^multipart\/form-data\s*;/i.test(type)) {
    throw wrong('the body must be multipart/form-data with the fields path, mode (optional) and file');
  }
  try {
    return new Busboy({
      headers,
      isPartAFile: (name, _type, fileName) => name === 'file' || fileName !== undefined,
      limits: { files: 1, fields: MAX_PARTS, parts: MAX_PARTS, fieldSize: MAX_FIELD_BYTES, fieldNameSize: 100 },
    });
  } catch (error) {
    throw wrong(messageOf(error));
  }
}

/** Returns `path`. Appends the name of the file if `path` is a directory. */
async function targetOf(access: SandboxAccess, path: string, fileName: string, signal: AbortSignal): Promise<string> {
  const isDirectory = path.endsWith('/') || (await isDirectoryThere(access, path, signal));
  if (!isDirectory) return path;
  const name = fileName.slice(fileName.lastIndexOf('/') + 1);
  if (name.includes(REPLACED)) throw wrong('path is a directory, and the name of the file must be UTF-8');
  if (name === '' || name === '.' || name === '..' || name.includes('\0')) {
    throw wrong(`path is a directory, and the file has no name that could stand in it: ${JSON.stringify(fileName)}`);
  }
  return path.endsWith('/') ? path + name : `${path}/${name}`;
}

async function isDirectoryThere(access: SandboxAccess, path: string, signal: AbortSignal): Promise<boolean> {
  try {
    await access.listFiles(path, { maxDepth: 1, maxEntries: 1 }, signal);
    return true;
  } catch (error) {
    // No directory exists at the path. `writeFile` reports the fault of the path.
    if (error instanceof ServiceError && IS_NO_DIRECTORY.has(error.code)) return false;
    throw error;
  }
}

const IS_NO_DIRECTORY = new Set(['not_found', 'permission_denied', 'invalid_request']);

function withHint(error: unknown): unknown {
  if (!(error instanceof ServiceError) || error.code !== 'not_found' || error.message.startsWith('instance ')) {
    return error;
  }
  return notFound(`${error.message}: directories are not made by an upload; make them with files/mkdir?recursive=true`);
}

function wrong(what: string): ServiceError {
  return invalidRequest(`invalid upload: ${what}`);
}

/** The error of a file that is too large. The entry answers it with 413. */
class TooLarge extends Error {
  readonly statusCode = 413;
}

function tooLarge(): TooLarge {
  return new TooLarge(`the file is larger than ${LIMITS.fileUploadBytes} bytes`);
}

/** The expected form of `mode`, for error texts. */
export const MODE_TEXT = 'permission bits in octal, such as 644, 0755 or 1777';
export const MODE_PATTERN = '^(0o?)?[0-7]{1,4}$';
const MODE = new RegExp(MODE_PATTERN);

/** Parses permission bits. null: the default. Throws the error that `wrong` builds from an invalid text. */
export function readMode(text: string | undefined, wrong: (text: string) => Error): number | null {
  if (text === undefined || text === '') return null;
  if (!MODE.test(text)) throw wrong(text.slice(0, 40));
  return Number.parseInt(text.replace(/^0o/, ''), 8);
}

export function formatMode(mode: number): string {
  return `0${(mode & 0o7777).toString(8).padStart(3, '0')}`;
}

/** Returns the problem of a path inside a sandbox; undefined when there is none. */
export function pathProblem(path: string): string | undefined {
  if (path === '') return 'must not be empty';
  if (path.includes('\0')) return 'must not contain a NUL character';
  if (Buffer.byteLength(path) > LIMITS.filePathBytes) return `must have at most ${LIMITS.filePathBytes} bytes`;
  return undefined;
}

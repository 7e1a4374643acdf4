import { Transform, type TransformCallback } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyHeaders, type BusboyInstance } from '@fastify/busboy';
import type { FastifyRequest } from 'fastify';
import { invalidRequest, messageOf, notFound, ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { MODE_TEXT, pathProblem, readMode } from './file-fields.ts';

/** The multipart body without its file: a longer body cannot hold a file that is small enough. */
const MAX_AROUND_BYTES = 64 * 1024;
const MAX_FIELD_BYTES = 8 * 1024;
const MAX_PARTS = 8;

export interface ReceivedFile {
  readonly path: string;
  readonly sizeBytes: number;
}

/**
 * Reads a multipart body (`path`, `mode?`, then `file`) and writes its file into the sandbox while it comes. The file is in its
 * place once the whole body was good, and only then. Fails with `invalid_request`, 413 (`TooLarge`), or as `writeFile` does.
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
    // A wrong body explains why the writing ended.
    throw upload.failure ?? withHint(error);
  }
}

interface UploadedFile {
  readonly path: string;
  readonly mode: number | null;
  readonly fileName: string;
  /** Ends when the whole body was read and good. */
  readonly content: Transform;
}

/** One multipart body. */
class Upload {
  /** The file, once its part begins. */
  readonly file: Promise<UploadedFile>;
  /** Why the body is wrong. */
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
      .on('field', (name, value, _nameCut, isCut) => this.#takeField(name, value, isCut))
      .on('file', (name, stream, fileName) => this.#takeFile(name, stream, fileName))
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

  /** Nobody reads it any more. */
  abandon(): void {
    this.#content?.destroy();
  }

  #takeField(name: string, value: string, isCut: boolean): void {
    if (this.#content) this.#fail(wrong(`the field ${name} must stand before the file`));
    else if (isCut) this.#fail(wrong(`the field ${name} is too long`));
    else if (this.#fields.has(name)) this.#fail(wrong(`the field ${name} must be given once`));
    else this.#fields.set(name, value);
  }

  #takeFile(name: string, stream: BusboyFileStream, fileName: string | undefined): void {
    // Errors of the body are reported by the parser as well.
    stream.on('error', () => undefined);
    try {
      if (this.failure) throw this.failure;
      if (name !== 'file') throw wrong(`the file must be in the field file, not in ${JSON.stringify(name)}`);
      const path = this.#fields.get('path');
      if (path === undefined) throw wrong('the field path must stand before the file');
      const problem = pathProblem(path);
      if (problem !== undefined) throw wrong(`path ${problem}`);
      const mode = readMode(this.#fields.get('mode'), text =>
        wrong(`mode must be ${MODE_TEXT}, got ${JSON.stringify(text)}`),
      );
      this.#content = new FileContent(stream);
      this.#content.on('error', error => {
        // Any other one comes from where it is written to, which tells it itself.
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

/** The bytes of the file: bounded, and without an end before the body around it was read to its own. */
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
    // The parser goes on only when the part is read.
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

/** `path`, or what the file is called inside it when it is a directory. */
async function targetOf(access: SandboxAccess, path: string, fileName: string, signal: AbortSignal): Promise<string> {
  const isDirectory = path.endsWith('/') || (await isDirectoryThere(access, path, signal));
  if (!isDirectory) return path;
  const name = fileName.slice(fileName.lastIndexOf('/') + 1);
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
    // Whatever is there, or is not: the writing says what is wrong with it.
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

/** Answered as the entry answers bodies that are too large: 413. */
class TooLarge extends Error {
  readonly statusCode = 413;
}

function tooLarge(): TooLarge {
  return new TooLarge(`the file is larger than ${LIMITS.fileUploadBytes} bytes`);
}

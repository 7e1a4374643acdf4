import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { PassThrough, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { Busboy, type BusboyHeaders } from '@fastify/busboy';
import { messageOf, ServiceError } from '../../core/error.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import type { FileFacts } from '../../sandbox/files.ts';
import { nameOf } from './entries.ts';
import { HttpError } from './errors.ts';

const METADATA_PREFIX = 'x-metadata-';
const MAX_KEY_BYTES = 246;
const MAX_METADATA_BYTES = 4096;
const PRINTABLE = /^[ -~]*$/;
/** Files in a multipart body. */
const MAX_PARTS = 10_000;
/**
 * Escapes that clients use for characters in a quoted file name (multipart/form-data of the HTML standard).
 */
const FORM_ESCAPES: Readonly<Record<string, string>> = { '%22': '"', '%0A': '\n', '%0D': '\r' };

export interface UploadTarget {
  readonly access: SandboxAccess;
  /** The path of the query; null: each part names its own. */
  readonly path: string | null;
  readonly user: string;
  readonly signal: AbortSignal;
}

/**
 * Writes the files of a request into the sandbox, one after the other, and returns the answer. A failure
 * leaves what was written until then. Fails with `HttpError` or `ServiceError`.
 */
export async function receiveFiles(raw: IncomingMessage, target: UploadTarget): Promise<readonly object[]> {
  const metadata = metadataOf(raw.headers);
  const type = raw.headers['content-type'] ?? '';
  const isForm = /^multipart\/form-data\s*(;|$)/i.test(type);
  if (!isForm && !/^application\/octet-stream\s*(;|$)/i.test(type)) {
    throw new HttpError(400, `unsupported content type: ${type === '' ? 'none' : type}`);
  }
  const body = decoded(raw);
  const write = (path: string, content: Readable) => writeOne(target, path, metadata, content);
  if (isForm) return await receiveForm(raw, body.stream, target.path, write, body.failed);
  if (target.path === null || target.path === '')
    throw new HttpError(400, 'path is required for application/octet-stream');
  return [await Promise.race([write(target.path, body.stream), body.failed])];
}

async function writeOne(
  { access, user, signal }: UploadTarget,
  path: string,
  metadata: Readonly<Record<string, string>>,
  content: Readable,
): Promise<object> {
  try {
    return toWritten(await access.writeInPlace(path, { user, metadata }, content, signal));
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'resource_exhausted') throw error;
    throw new HttpError(507, 'not enough disk space available', error);
  }
}

function toWritten({ path, metadata }: FileFacts): object {
  const hasMetadata = Object.keys(metadata).length > 0;
  return { path, name: nameOf(path), type: 'file', ...(hasMetadata ? { metadata } : {}) };
}

/** Returns the body without its `Content-Encoding`. `failed` rejects when the encoding is wrong. */
function decoded(raw: IncomingMessage): { readonly stream: Readable; readonly failed: Promise<never> } {
  const encoding = (raw.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (encoding === 'identity' || encoding === '') {
    const stream = new PassThrough();
    return { stream, failed: passing(pipeline(raw, stream)) };
  }
  if (encoding !== 'gzip') throw new HttpError(400, `unsupported content encoding: ${encoding}`);
  const stream = createGunzip();
  return { stream, failed: passing(pipeline(raw, stream)) };
}

/** Rejects with the error of a body that breaks off or cannot be unpacked; otherwise stays open. */
function passing(work: Promise<void>): Promise<never> {
  const failed = new Promise<never>((_resolve, reject) => {
    work.catch(error => reject(new HttpError(400, `the body cannot be read: ${messageOf(error)}`, error)));
  });
  failed.catch(() => undefined);
  return failed;
}

type Write = (path: string, content: Readable) => Promise<object>;

/** Reads a multipart body. Each part `file` is a file; other parts are skipped. */
async function receiveForm(
  raw: IncomingMessage,
  body: Readable,
  path: string | null,
  write: Write,
  failed: Promise<never>,
): Promise<readonly object[]> {
  const written: object[] = [];
  const paths = new Set<string>();
  let writing: Promise<void> = Promise.resolve();
  const parser = parserFor(raw.headers as BusboyHeaders);
  const done = new Promise<void>((resolve, reject) => {
    const fail = (error: unknown) => {
      reject(error);
      body.unpipe(parser);
    };
    parser.on('file', (name, stream, fileName) => {
      // The parser reports errors of the body too.
      stream.on('error', () => undefined);
      const target = path ?? unescaped(fileName ?? '');
      if (name !== 'file') return void stream.resume();
      if (target === '') return fail(new HttpError(400, 'a file has no name, and the query has no path'));
      if (paths.has(target)) return fail(new HttpError(400, `the path ${target} is given twice`));
      paths.add(target);
      writing = writing.then(async () => void written.push(await write(target, stream)));
      writing.catch(fail);
      return undefined;
    });
    parser.once('filesLimit', () => fail(new HttpError(400, `the body has more than ${MAX_PARTS} files`)));
    parser.once('error', (error: unknown) => fail(new HttpError(400, `invalid body: ${messageOf(error)}`)));
    parser.once('finish', () => writing.then(resolve, reject));
    body.pipe(parser);
  });
  await Promise.race([done, failed]);
  return written;
}

function parserFor(headers: BusboyHeaders) {
  try {
    return new Busboy({
      headers,
      // The directories of a file name belong to its path.
      preservePath: true,
      isPartAFile: (name, _type, fileName) => name === 'file' || fileName !== undefined,
      limits: { files: MAX_PARTS, fields: MAX_PARTS, fieldSize: 64 * 1024, fieldNameSize: 100 },
    });
  } catch (error) {
    throw new HttpError(400, `invalid body: ${messageOf(error)}`);
  }
}

function unescaped(fileName: string): string {
  return fileName.replace(/%(22|0A|0D)/g, escaped => FORM_ESCAPES[escaped] as string);
}

/** Reads the headers `X-Metadata-<key>`. Fails with 400. */
function metadataOf(headers: IncomingHttpHeaders): Readonly<Record<string, string>> {
  const metadata: Record<string, string> = {};
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(METADATA_PREFIX)) continue;
    const key = name.slice(METADATA_PREFIX.length);
    const text = String(value);
    if (key === '' || Buffer.byteLength(key) > MAX_KEY_BYTES) {
      throw new HttpError(400, `the key of a metadata header must have 1 to ${MAX_KEY_BYTES} bytes`);
    }
    if (!PRINTABLE.test(text)) throw new HttpError(400, `metadata ${key} must be printable ASCII`);
    bytes += key.length + text.length;
    metadata[key] = text;
  }
  if (bytes > MAX_METADATA_BYTES) throw new HttpError(400, `metadata has at most ${MAX_METADATA_BYTES} bytes`);
  return metadata;
}

import type { IncomingMessage, ServerResponse } from 'node:http';
import { extname } from 'node:path/posix';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ServiceError, unavailable } from '../../core/error.ts';
import type { OpenFile } from '../../sandbox/access.ts';
import { contentDisposition, Exactly, isUnchanged, mayBePart, readRange } from '../file-answer.ts';
import { HttpError } from './errors.ts';

/**
 * Media types by extension. Pages and scripts are missing: a file of a sandbox must not run in a browser
 * with the rights of the service's own pages.
 */
const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.csv': 'text/csv; charset=utf-8',
  '.gif': 'image/gif',
  '.jpeg': 'image/jpeg',
  '.jpg': 'image/jpeg',
  '.json': 'application/json',
  '.md': 'text/markdown; charset=utf-8',
  '.pdf': 'application/pdf',
  '.png': 'image/png',
  '.txt': 'text/plain; charset=utf-8',
  '.webp': 'image/webp',
};
/** End of a read to the end of a file whose size is unknown. */
const TO_THE_END = Number.MAX_SAFE_INTEGER;
const AS_BYTES = { objectMode: false };
/** Attempts to read a file that shrinks while it is read. */
const MAX_ATTEMPTS = 3;

/** Fails with 406 when the client accepts no answer without compression. */
export function checkAcceptsIdentity({ headers }: IncomingMessage): void {
  const codings = String(headers['accept-encoding'] ?? '').split(',');
  if (codings.some(each => /^\s*(identity|\*)\s*;\s*q=0(\.0{0,3})?\s*$/i.test(each)) && !acceptsIdentity(codings)) {
    throw new HttpError(406, 'no acceptable encoding: files are sent without compression');
  }
}

function acceptsIdentity(codings: readonly string[]): boolean {
  return codings.some(each => /^\s*identity\s*($|;\s*q=(1|0\.0*[1-9]))/i.test(each));
}

/**
 * Sends the file that `open` opens, or a part of it. Opens it again if it shrinks before its first bytes were
 * read, as a file that is overwritten in place may. Fails before the head of the answer, or in the middle.
 */
export async function sendFile(
  raw: IncomingMessage,
  response: ServerResponse,
  path: string,
  open: () => Promise<OpenFile>,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await sendOpened(raw, response, path, await open());
    } catch (error) {
      const mayRepeat = error instanceof ServiceError && error.code === 'unavailable';
      if (!mayRepeat || response.headersSent || response.destroyed || attempt === MAX_ATTEMPTS) throw error;
      response.removeHeader('Content-Range');
    }
  }
}

async function sendOpened(raw: IncomingMessage, response: ServerResponse, path: string, file: OpenFile): Promise<void> {
  const { sizeBytes, modifiedAtMs } = file;
  const modifiedMs = Math.floor(modifiedAtMs / 1000) * 1000;
  const tag = `"${sizeBytes.toString(16)}-${Math.floor(modifiedAtMs).toString(16)}"`;
  response
    .setHeader('Accept-Ranges', 'bytes')
    .setHeader('ETag', tag)
    .setHeader('Last-Modified', new Date(modifiedMs).toUTCString())
    .setHeader('Cache-Control', 'private, no-cache')
    .setHeader('Vary', 'Accept-Encoding')
    .setHeader('X-Content-Type-Options', 'nosniff')
    .setHeader('Content-Security-Policy', 'sandbox')
    .setHeader('Content-Disposition', contentDisposition('inline', path))
    .setHeader('Content-Type', TYPES[extname(path).toLowerCase()] ?? 'application/octet-stream');
  if (sizeBytes === 0) {
    await sendToTheEnd(raw, response, file);
    return;
  }
  const { headers } = raw;
  if (isUnchanged(headers['if-none-match'], headers['if-modified-since'], tag, modifiedMs)) {
    file.close();
    response.removeHeader('Content-Type');
    response.writeHead(304).end();
    return;
  }
  const mayRange = raw.method === 'GET' && mayBePart(headers['if-range'], tag, modifiedMs);
  const range = mayRange ? readRange(headers.range, sizeBytes) : null;
  if (range === 'outside') {
    file.close();
    response.setHeader('Content-Range', `bytes */${sizeBytes}`);
    throw new HttpError(416, `the range ${headers.range} is outside the file, which has ${sizeBytes} bytes`);
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes };
  if (range) response.setHeader('Content-Range', `bytes ${start}-${end - 1}/${sizeBytes}`);
  const status = range ? 206 : 200;
  const head = { 'Content-Length': end - start };
  if (raw.method === 'HEAD') {
    file.close();
    response.writeHead(status, head).end();
    return;
  }
  // The first bytes come before the head, so that a file that shrinks meanwhile may be opened again.
  const content: AsyncIterator<Buffer> = file.read(start, end)[Symbol.asyncIterator]();
  const first = await content.next();
  if (first.done) throw unavailable(`${path} became shorter while it was read`);
  response.writeHead(status, head);
  await pipeline(Readable.from(allOf(first.value, content), AS_BYTES), new Exactly(end - start), response);
}

/** Sends a file that is empty, or whose size is unknown (`/proc`). */
async function sendToTheEnd(raw: IncomingMessage, response: ServerResponse, file: OpenFile): Promise<void> {
  if (raw.method === 'HEAD') {
    file.close();
    response.writeHead(200).end();
    return;
  }
  const content: AsyncIterator<Buffer> = file.read(0, TO_THE_END)[Symbol.asyncIterator]();
  const first = await content.next();
  if (first.done) response.writeHead(200, { 'Content-Length': 0 }).end();
  else {
    response.writeHead(200);
    await pipeline(Readable.from(allOf(first.value, content), AS_BYTES), response);
  }
}

async function* allOf(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* { [Symbol.asyncIterator]: () => rest };
}

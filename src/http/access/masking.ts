import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ENVIRONMENTS, MASK } from '../../core/environment.ts';
import { internal } from '../../core/error.ts';
import { JSON_TYPE } from '../answer.ts';

/** Replies that `sendJsonList` and `sendJsonText` have already masked or exempted. */
const masked = new WeakSet<FastifyReply>();

/**
 * Masks the values of environment variables for viewers, in every JSON answer of an entry.
 * Environments are recognized by the name of their field.
 * Masks whole texts only. Streamed answers use `sendJsonList` or `sendJsonText`; any other JSON stream fails
 * for a viewer.
 */
export function addMasking(app: FastifyInstance): void {
  app.addHook('onSend', (request, reply, payload, done) => {
    if (request.role !== 'viewer' || !isJson(reply) || request.route.noEnvironments === true || masked.has(reply)) {
      done(null, payload);
      return;
    }
    if (typeof payload === 'string') done(null, maskText(payload));
    else if (Buffer.isBuffer(payload)) done(null, maskText(payload.toString()));
    else if (payload === null || payload === undefined) done(null, payload);
    else done(internal('an answer for a viewer that cannot be masked'));
  });
}

/** Sends a JSON array page by page, at the speed of the reader. Masks it for viewers. */
export function sendJsonList<T>(
  request: FastifyRequest,
  reply: FastifyReply,
  pages: AsyncIterable<readonly T[]>,
  recordOf: (item: T) => unknown,
): FastifyReply {
  masked.add(reply);
  const isMasked = request.role === 'viewer';
  const textOf = (item: T) => JSON.stringify(isMasked ? maskValue(recordOf(item)) : recordOf(item));
  return reply.type(JSON_TYPE).send(Readable.from(textsOf(pages, textOf)));
}

/**
 * Sends an object with one text field as a stream, at the speed of the reader. Does not mask the text.
 * Replaces bytes that are not UTF-8 with U+FFFD.
 */
export function sendJsonText(reply: FastifyReply, name: string, chunks: AsyncIterable<Buffer>): FastifyReply {
  masked.add(reply);
  return reply.type(JSON_TYPE).send(Readable.from(jsonTextOf(name, chunks)));
}

/** Yields `{"<name>":"<text>"}` in pieces, escaped like `JSON.stringify` does. */
export async function* jsonTextOf(name: string, chunks: AsyncIterable<Buffer>): AsyncIterable<string> {
  // A chunk may end inside a character.
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const escaped = (text: string) => JSON.stringify(text).slice(1, -1);
  yield `{${JSON.stringify(name)}:"`;
  for await (const chunk of chunks) {
    const text = escaped(decoder.decode(chunk, { stream: true }));
    if (text !== '') yield text;
  }
  yield `${escaped(decoder.decode())}"}`;
}

async function* textsOf<T>(pages: AsyncIterable<readonly T[]>, textOf: (item: T) => string): AsyncIterable<string> {
  let before = '[';
  for await (const page of pages) {
    if (page.length === 0) continue;
    yield before + page.map(textOf).join(',');
    before = ',';
  }
  yield before === '[' ? '[]' : ']';
}

function isJson(reply: FastifyReply): boolean {
  return String(reply.getHeader('content-type') ?? '').startsWith('application/json');
}

function maskText(text: string): string {
  return text === '' ? text : JSON.stringify(maskValue(JSON.parse(text)));
}

function maskValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(maskValue);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      name,
      ENVIRONMENTS.has(name) && isObject(inner) ? maskAll(inner) : maskValue(inner),
    ]),
  );
}

/** Masks every value of an environment, in whatever shape it was stored. */
function maskAll(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(maskAll);
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, maskAll(inner)]));
  return value === null || value === '' ? value : MASK;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

/** Text that replaces a path of the service. */
const HIDDEN = '[a path of the service]';

/**
 * Returns a function that replaces paths below `directories` in a text.
 * Clients have no use for these paths, and must not learn them. Paths that the client itself sent (`sent`:
 * the request's body) stay.
 */
export function hidingOwnPaths(directories: readonly string[]): (text: string, sent?: unknown) => string {
  const own = directories.filter(directory => directory.length > 1).map(escaped);
  if (own.length === 0) return text => text;
  const pattern = new RegExp(`(?:${own.join('|')})(?![\\w.-])[^\\s"'\`,;:)\\\\]*`, 'g');
  return (text, sent) => text.replace(pattern, path => (Buffer.isBuffer(sent) && sent.includes(path) ? path : HIDDEN));
}

function escaped(directory: string): string {
  return directory.replace(/\/+$/, '').replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

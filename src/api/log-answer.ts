import type { ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { messageOf } from '../core/error.ts';
import { type ParametersOf, readParameters, type Sent } from '../core/parameter.ts';
import { answerController, onTokenEnd } from '../http/access/caller.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { LogChunks, LogRequest } from '../sandbox/driver.ts';
import { badQuery, flag, integer, parsed } from './query.ts';

export const TEXT = 'text/plain; charset=utf-8';
const EVENTS = 'text/event-stream';
const HEARTBEAT_MS = 15_000;
/** Longest wait for a log to open. A node of Kubernetes may answer only with the first line. */
const OPEN_MS = 1_000;

/**
 * Answers requests for logs.
 * A followed log ends when the server closes, and when the admitting token expires.
 */
export class LogAnswers {
  readonly #open = new Set<AbortController>();

  constructor(app: FastifyInstance) {
    app.addHook('preClose', done => {
      for (const controller of this.#open) controller.abort();
      done();
    });
  }

  sendEmpty(reply: FastifyReply): FastifyReply {
    return reply.type(TEXT).send('');
  }

  /**
   * Sends the chunks that `read` yields as text. Before the first byte, failures become ordinary error
   * answers. A followed log opens before the head is sent, so that a client that has the head misses no line.
   */
  async send(
    request: FastifyRequest,
    reply: FastifyReply,
    wanted: LogRequest,
    read: (signal: AbortSignal) => Promise<LogChunks>,
  ): Promise<FastifyReply> {
    const controller = answerController(reply.raw);
    this.#open.add(controller);
    if (wanted.follow) onTokenEnd(request, reply.raw, () => controller.abort());
    try {
      return await this.#send(request, reply, wanted, controller.signal, read);
    } finally {
      this.#open.delete(controller);
    }
  }

  async #send(
    request: FastifyRequest,
    reply: FastifyReply,
    wanted: LogRequest,
    signal: AbortSignal,
    read: (signal: AbortSignal) => Promise<LogChunks>,
  ): Promise<FastifyReply> {
    const chunks = await read(signal);
    if (wanted.follow && chunks.open !== undefined) await endsWithin(chunks.open(), OPEN_MS, signal);
    reply.hijack();
    const { raw } = reply;
    for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value);
    const isEvents = wanted.follow && (request.headers.accept ?? '').includes(EVENTS);
    raw.setHeader('Content-Type', isEvents ? `${EVENTS}; charset=utf-8` : TEXT);
    if (wanted.follow) {
      raw.setHeader('Cache-Control', 'no-store');
      // nginx would hold back lines until its buffer is full.
      raw.setHeader('X-Accel-Buffering', 'no');
      // Shows the client that it is connected, before the first line exists.
      raw.flushHeaders();
    }
    try {
      if (isEvents) await writeEvents(raw, chunks, signal);
      else await writeAll(raw, chunks, signal);
      raw.end();
    } catch (error) {
      if (signal.aborted) {
        raw.end();
        return reply;
      }
      // The status was already sent, so only a broken connection can show that lines are missing.
      request.failure = `the log was interrupted: ${messageOf(error)}`;
      raw.destroy();
    }
    return reply;
  }
}

/**
 * Writes each chunk as an event with its bytes in base64, and an event `end` after the last chunk.
 * Writes comments while there are no chunks, because proxies close connections that are silent for a minute.
 * Plain text has no bytes that a reader would ignore.
 */
async function writeEvents(raw: ServerResponse, chunks: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  const heartbeat = setInterval(() => {
    if (raw.writableLength === 0) raw.write(':\n\n');
  }, HEARTBEAT_MS);
  try {
    await writeAll(raw, eventsOf(chunks), signal);
    if (!signal.aborted) raw.write('event: end\ndata:\n\n');
  } finally {
    clearInterval(heartbeat);
  }
}

async function* eventsOf(chunks: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  for await (const chunk of chunks) yield Buffer.from(`data: ${chunk.toString('base64')}\n\n`);
}

/**
 * Writes one chunk after the other and waits for each, because the next chunk may reuse its memory.
 * At most one chunk waits in memory for a slow reader.
 */
async function writeAll(raw: ServerResponse, chunks: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  for await (const chunk of chunks) {
    await new Promise<void>(resolve => {
      const done = () => {
        signal.removeEventListener('abort', done);
        resolve();
      };
      signal.addEventListener('abort', done);
      raw.write(chunk, done);
    });
    if (signal.aborted) return;
  }
}

const RFC3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses a moment (RFC 3339) or an age (`10m`, `1h30m`). Fails with `invalid_request`. */
export function readMoment(text: string, name: string, nowMs: number): number {
  if (DURATION.test(text)) {
    const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
    return nowMs - parts.reduce((sum, [, count, unit]) => sum + Number(count) * (UNIT_MS[unit as string] as number), 0);
  }
  // An offset's "+" that was not percent-encoded arrives as a space.
  const stamp = text.replace(/ (?=\d{2}:\d{2}$)/, '+');
  const moment = RFC3339.test(stamp) ? Date.parse(stamp) : Number.NaN;
  if (Number.isNaN(moment)) throw badQuery(name, 'a moment (RFC 3339) or a duration like 10m', text);
  return moment;
}

/** The schema of what `readMoment` reads. */
export const MOMENT = {
  anyOf: [
    { type: 'string', format: 'date-time' },
    { type: 'string', pattern: '^([0-9]{1,5}(ms|s|m|h|d))+$', description: 'How long ago: `10m`.' },
    { type: 'string', maxLength: 0, description: 'As without the parameter.' },
  ],
};

/** The query of a log. */
export const LOG_QUERY = {
  tail: integer({ min: 0, max: Number.MAX_SAFE_INTEGER }, null, {
    description: 'The last n lines; of several instances, of each one.',
  }),
  since: parsed<number | null>(MOMENT, null, (text, name) => readMoment(text, name, Date.now())),
  until: parsed<number | null>(
    { ...MOMENT, description: 'Lines before this moment; not with `follow`.' },
    null,
    (text, name) => readMoment(text, name, Date.now()),
  ),
  follow: flag('Go on until the caller leaves; of a function, with instances that start later.'),
};

/** Fails with `invalid_request`. */
export function readLogRequest(query: Sent): LogRequest {
  const { tail, since, until, follow } = readParameters<ParametersOf<typeof LOG_QUERY>>(LOG_QUERY, query);
  if (until !== null && follow) throw badQuery('until', 'absent beside follow', String(query.until));
  return { tail, sinceMs: since, ...(until !== null && { untilMs: until }), follow };
}

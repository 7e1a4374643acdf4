import type { ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { messageOf } from '../core/error.ts';
import { type ParametersOf, readParameters, type Sent } from '../core/parameter.ts';
import { answerController } from '../http/caller.ts';
import { onTokenEnd } from '../http/token-end.ts';
import type { LogRequest } from '../sandbox/driver.ts';
import { badQuery, flag, integer, parsed } from './query.ts';

export const TEXT = 'text/plain; charset=utf-8';

/** Answers requests for logs; those that follow end when the server closes, and when the token that let them in holds no longer. */
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

  /** Sends what `read` yields as text. Until the first byte, failures are ordinary ones. */
  async send(
    request: FastifyRequest,
    reply: FastifyReply,
    wanted: LogRequest,
    read: (signal: AbortSignal) => Promise<AsyncIterable<Buffer>>,
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
    read: (signal: AbortSignal) => Promise<AsyncIterable<Buffer>>,
  ): Promise<FastifyReply> {
    const chunks = await read(signal);
    reply.hijack();
    const { raw } = reply;
    for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value);
    raw.setHeader('Content-Type', TEXT);
    // A follower sees that it is connected before there is a line.
    if (wanted.follow) raw.flushHeaders();
    try {
      await writeAll(raw, chunks, signal);
      raw.end();
    } catch (error) {
      if (signal.aborted) {
        raw.end();
        return reply;
      }
      // The status is gone; a connection that breaks off is the only way left to say that lines are missing.
      request.failure = `the log broke off: ${messageOf(error)}`;
      raw.destroy();
    }
    return reply;
  }
}

/** One chunk after the other: its memory may be the next one's, and it is all that waits here for a reader that rests. */
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

/** A moment (RFC 3339), or how long ago (`10m`, `1h30m`). Fails with `invalid_request`. */
function readSince(text: string, nowMs: number): number {
  if (DURATION.test(text)) {
    const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
    return nowMs - parts.reduce((sum, [, count, unit]) => sum + Number(count) * (UNIT_MS[unit as string] as number), 0);
  }
  // The "+" of an offset that was not encoded arrives as a blank.
  const stamp = text.replace(/ (?=\d{2}:\d{2}$)/, '+');
  const moment = RFC3339.test(stamp) ? Date.parse(stamp) : Number.NaN;
  if (Number.isNaN(moment)) throw badQuery('since', 'a moment (RFC 3339) or a duration like 10m', text);
  return moment;
}

/** The query of a log. */
export const LOG_QUERY = {
  tail: integer({ min: 0, max: Number.MAX_SAFE_INTEGER }, null, {
    description: 'The last n lines; of several instances, of each one.',
  }),
  since: parsed<number | null>(
    {
      anyOf: [
        { type: 'string', format: 'date-time' },
        { type: 'string', pattern: '^([0-9]{1,5}(ms|s|m|h|d))+$', description: 'How long ago: `10m`.' },
      ],
    },
    null,
    text => readSince(text, Date.now()),
  ),
  follow: flag('Go on until the caller leaves; of a function, with instances that start later.'),
};

/** Fails with `invalid_request`. */
export function readLogRequest(query: Sent): LogRequest {
  const { tail, since, follow } = readParameters<ParametersOf<typeof LOG_QUERY>>(LOG_QUERY, query);
  return { tail, sinceMs: since, follow };
}

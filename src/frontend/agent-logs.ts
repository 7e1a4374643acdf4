import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { answerController } from '../http/caller.ts';
import type { LogRequest } from '../sandbox/driver.ts';
import type { Instances } from '../scheduler/contract.ts';
import { AGENT_DOCS } from './agent-docs.ts';
import { badQuery, type Query, queryFlag, queryInteger, queryText } from './query.ts';

const TEXT = 'text/plain; charset=utf-8';

/**
 * `GET /api/agent/{instanceId}/logs`: what the user's code wrote, as text. With `follow` it goes on until the sandbox ends, the
 * caller leaves or the server closes.
 */
export function addLogsRoute(app: FastifyInstance, instances: Instances): void {
  const open = new Set<AbortController>();
  app.addHook('preClose', done => {
    for (const controller of open) controller.abort();
    done();
  });

  app.get<{ Params: { instanceId: string }; Querystring: Query }>(
    '/api/agent/:instanceId/logs',
    { config: { access: 'read', longLived: true, docs: AGENT_DOCS.logs } },
    async (request, reply) => {
      const wanted = readLogRequest(request.query, Date.now());
      if (request.method === 'HEAD') {
        await instances.get(request.tenant, request.params.instanceId);
        return reply.type(TEXT).send('');
      }
      const controller = answerController(reply.raw);
      open.add(controller);
      const { signal } = controller;
      signal.addEventListener('abort', () => open.delete(controller), { once: true });
      const chunks = await instances.logs(request.tenant, request.params.instanceId, wanted, signal);
      reply.hijack();
      const { raw } = reply;
      for (const [name, value] of Object.entries(reply.getHeaders()))
        if (value !== undefined) raw.setHeader(name, value);
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
        request.failure = `the log broke off: ${error instanceof Error ? error.message : String(error)}`;
        raw.destroy();
      }
      return reply;
    },
  );
}

async function writeAll(raw: ServerResponse, chunks: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  for await (const chunk of chunks) {
    if (!raw.write(chunk)) await once(raw, 'drain', { signal });
  }
}

function readLogRequest(query: Query, nowMs: number): LogRequest {
  return {
    tail: queryInteger(query, 'tail', { min: 0, max: Number.MAX_SAFE_INTEGER }) ?? null,
    sinceMs: readSince(queryText(query, 'since'), nowMs),
    follow: queryFlag(query, 'follow'),
  };
}

const RFC3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/;
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A moment (RFC 3339), or how long ago (`10m`, `1h30m`). Fails with `invalid_request`. */
function readSince(text: string | undefined, nowMs: number): number | null {
  if (text === undefined) return null;
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

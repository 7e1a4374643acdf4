import type { ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { invalidRequest, messageOf, ServiceError } from '../../core/error.ts';
import { type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import { answerController, onTokenEnd } from '../../http/access/caller.ts';
import type { DirectoryWatch, FileFacts, WatchEvent } from '../../sandbox/files.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { ENTRY_DOCS } from './file-entry-docs.ts';
import { formatMode } from './files-upload.ts';
import { ENTRY_QUERY, RENAME_QUERY, WATCH_QUERY } from './parameters.ts';

interface ById {
  Params: { instanceId: string };
  Querystring: Sent;
}

const HEARTBEAT_MS = 15_000;

/** Adds the routes that describe, rename, remove and watch files in an agent's sandbox. */
export function addFileEntryRoutes(app: FastifyInstance, instances: AgentInstances): void {
  const files = '/api/agent/:instanceId/files';
  const accessOf = (request: FastifyRequest<ById>) => instances.access(request.tenant, request.params.instanceId);

  app.get<ById>(
    `${files}/stat`,
    { config: { access: 'read', livesWith: LIVES_WITH_AGENT, docs: ENTRY_DOCS.stat } },
    async (request, reply) => {
      const { path, user } = readParameters(ENTRY_QUERY, request.query);
      const { signal } = answerController(reply.raw);
      const access = await accessOf(request);
      return { code: 200, file: factsRecord(await forCaller(access.statFile(path, { user }, signal))) };
    },
  );

  app.post<ById>(
    `${files}/rename`,
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: ENTRY_DOCS.rename } },
    async (request, reply) => {
      const { from, to, user } = readParameters(RENAME_QUERY, request.query);
      const { signal } = answerController(reply.raw);
      const access = await accessOf(request);
      return { code: 200, file: factsRecord(await forCaller(access.renameFile(from, to, { user }, signal))) };
    },
  );

  app.delete<ById>(
    files,
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: ENTRY_DOCS.remove } },
    async (request, reply) => {
      const { path, user } = readParameters(ENTRY_QUERY, request.query);
      const { signal } = answerController(reply.raw);
      const access = await accessOf(request);
      await forCaller(access.removeFile(path, { user }, signal));
      return { code: 200, path };
    },
  );

  const open = new Set<DirectoryWatch>();
  app.addHook('preClose', done => {
    for (const watch of open) watch.close();
    done();
  });
  app.get<ById>(
    `${files}/watch`,
    {
      config: {
        access: 'read',
        longLived: true,
        costly: 'follow',
        livesWith: LIVES_WITH_AGENT,
        docs: ENTRY_DOCS.watch,
      },
    },
    async (request, reply) => {
      const { path, recursive, facts, user } = readParameters<ParametersOf<typeof WATCH_QUERY>>(
        WATCH_QUERY,
        request.query,
      );
      const { signal } = answerController(reply.raw);
      const access = await accessOf(request);
      const watch = await forCaller(access.watchDirectory(path, { user, recursive, withFacts: facts }, signal));
      open.add(watch);
      try {
        await sendWatch(request, reply, watch);
      } finally {
        watch.close();
        open.delete(watch);
      }
      return reply;
    },
  );
}

/** An unknown account is a fault of the request; the caller's own token is valid. */
async function forCaller<T>(operation: Promise<T>): Promise<T> {
  try {
    return await operation;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'unauthenticated') throw invalidRequest(error.message);
    throw error;
  }
}

/** Sends the changes until the client disconnects, its token expires, or the watch ends. */
async function sendWatch(request: FastifyRequest, reply: FastifyReply, watch: DirectoryWatch): Promise<void> {
  const { raw } = reply;
  reply.hijack();
  for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value);
  raw.setHeader('Content-Type', 'text/event-stream; charset=utf-8');
  raw.setHeader('Cache-Control', 'no-store');
  raw.setHeader('X-Accel-Buffering', 'no');
  raw.once('close', () => watch.close());
  onTokenEnd(request, raw, () => watch.close());
  // The client knows by the first bytes that the watch stands.
  raw.write(':\n\n');
  const heartbeat = setInterval(() => {
    if (raw.writableLength === 0) raw.write(':\n\n');
  }, HEARTBEAT_MS);
  try {
    for await (const event of watch) await write(raw, `data: ${JSON.stringify(eventRecord(event))}\n\n`);
  } catch (error) {
    const code = error instanceof ServiceError ? error.code : 'internal';
    request.failure = `the watch ended: ${messageOf(error)}`;
    raw.write(`event: error\ndata: ${JSON.stringify({ code, message: messageOf(error) })}\n\n`);
  } finally {
    clearInterval(heartbeat);
    raw.end();
  }
}

/** Waits for a slow reader, so that at most one event waits in memory. */
async function write(raw: ServerResponse, text: string): Promise<void> {
  if (raw.destroyed || raw.write(text)) return;
  await new Promise<void>(resolve => {
    const done = () => {
      raw.off('drain', done).off('close', done);
      resolve();
    };
    raw.once('drain', done).once('close', done);
  });
}

function eventRecord({ type, name, facts }: WatchEvent) {
  return { type, name: shownOf(name), ...(facts !== undefined && { file: factsRecord(facts) }) };
}

/** Shows bytes that are not UTF-8 as U+FFFD. */
function shownOf(path: string): string {
  return Buffer.from(path).toString();
}

function factsRecord(facts: FileFacts) {
  const path = shownOf(facts.path);
  return {
    path,
    name: path.slice(path.lastIndexOf('/') + 1),
    type: facts.type,
    size: facts.sizeBytes,
    mode: formatMode(facts.mode),
    modified_at: new Date(facts.modifiedAtMs).toISOString(),
    owner: facts.owner,
    group: facts.group,
    metadata: facts.metadata,
    ...(facts.target !== null && { target: { path: shownOf(facts.target.path), type: facts.target.type } }),
  };
}

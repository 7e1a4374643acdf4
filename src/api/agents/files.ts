import { pipeline } from 'node:stream/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { messageOf } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import { refusal } from '../../http/answer.ts';
import type { FileEntry, OpenFile } from '../../sandbox/access.ts';
import { contentDisposition, Exactly, isUnchanged, mayBePart, readRange } from '../file-answer.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { FILE_DOCS } from './docs.ts';
import { formatMode, receiveFile } from './files-upload.ts';
import { DOWNLOAD_QUERY, FILES_QUERY, MKDIR_QUERY } from './parameters.ts';

interface ById {
  Params: { instanceId: string };
  Querystring: Sent;
}

/**
 * Adds the routes that upload, download, list and create files in an agent's sandbox. Bodies are streamed.
 */
export function addFileRoutes(app: FastifyInstance, instances: AgentInstances): void {
  const files = '/api/agent/:instanceId/files';
  const accessOf = (request: FastifyRequest<ById>) => instances.access(request.tenant, request.params.instanceId);

  app.register(async scope => {
    // The handler streams the body.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));

    scope.post<ById>(
      `${files}/upload`,
      {
        bodyLimit: LIMITS.fileUploadBytes,
        config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: FILE_DOCS.upload },
      },
      async (request, reply) => {
        const { signal } = stillness(reply);
        try {
          const { path, sizeBytes } = await receiveFile(request, await accessOf(request), signal);
          return { code: 200, path, size: sizeBytes };
        } finally {
          // Reads and discards a refused body, so that the client can read the reason.
          request.raw.unpipe();
          request.raw.resume();
        }
      },
    );
  });

  app.get<ById>(
    `${files}/download`,
    {
      config: {
        access: 'read',
        longLived: true,
        costly: 'scan',
        livesWith: LIVES_WITH_AGENT,
        docs: FILE_DOCS.download,
      },
    },
    async (request, reply) => {
      const { path } = readParameters(DOWNLOAD_QUERY, request.query);
      const { signal } = stillness(reply);
      const access = await accessOf(request);
      return await sendFile(request, reply, { path, file: await access.openFile(path, signal) });
    },
  );

  app.get<ById>(
    `${files}/list`,
    { config: { access: 'read', costly: 'scan', livesWith: LIVES_WITH_AGENT, docs: FILE_DOCS.list } },
    async (request, reply) => {
      const { path, recursive, max_depth } = readParameters(FILES_QUERY, request.query);
      const maxDepth = recursive ? (max_depth ?? LIMITS.fileList.maxDepth) : 1;
      const { signal } = stillness(reply);
      const access = await accessOf(request);
      const { maxEntries } = LIMITS.fileList;
      const { entries, truncated } = await access.listFiles(path, { maxDepth, maxEntries }, signal);
      return { code: 200, files: entries.map(fileRecord), truncated };
    },
  );

  app.post<ById>(
    `${files}/mkdir`,
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: FILE_DOCS.mkdir } },
    async (request, reply) => {
      const { path, mode, recursive } = readParameters(MKDIR_QUERY, request.query);
      const { signal } = stillness(reply);
      const access = await accessOf(request);
      await access.makeDirectory(path, { mode, recursive }, signal);
      return { code: 200, path };
    },
  );
}

/**
 * Returns a controller that aborts when the answer is complete, or the client disconnects.
 * Closes the connection after `LIMITS.fileIdleMs` without activity.
 */
function stillness(reply: FastifyReply): AbortController {
  const controller = answerController(reply.raw);
  reply.raw.setTimeout(LIMITS.fileIdleMs, () => reply.raw.destroy());
  return controller;
}

/**
 * Converts a file entry to a record.
 * A path that is not UTF-8 has U+FFFD for each invalid byte.
 * Such a path is marked, because no request can name the file.
 */
function fileRecord({ path, type, sizeBytes, mode, modifiedAtMs }: FileEntry) {
  const shown = Buffer.from(path).toString();
  return {
    path: shown,
    name: shown.slice(shown.lastIndexOf('/') + 1),
    ...(shown === path ? {} : { not_utf8: true }),
    type,
    size: sizeBytes,
    mode: formatMode(mode),
    modified_at: new Date(modifiedAtMs).toISOString(),
  };
}

interface Opened {
  readonly path: string;
  readonly file: OpenFile;
}

/** Answers with a file, or with one range of it (RFC 9110 §14). Closes `file`. */
export async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  { path, file }: Opened,
): Promise<FastifyReply> {
  const { sizeBytes, modifiedAtMs, mode } = file;
  // HTTP dates have a resolution of a second.
  const modifiedMs = Math.floor(modifiedAtMs / 1000) * 1000;
  const tag = `"${sizeBytes.toString(16)}-${Math.floor(modifiedAtMs).toString(16)}"`;
  reply
    .header('Accept-Ranges', 'bytes')
    .header('X-File-Mode', formatMode(mode))
    .header('ETag', tag)
    .header('Last-Modified', new Date(modifiedMs).toUTCString())
    .header('Cache-Control', 'private, no-cache')
    .header('X-Content-Type-Options', 'nosniff');
  const { headers } = request.raw;
  if (isUnchanged(headers['if-none-match'], headers['if-modified-since'], tag, modifiedMs)) {
    file.close();
    return reply.code(304).send();
  }
  const mayRange = request.method === 'GET' && mayBePart(headers['if-range'], tag, modifiedMs);
  const range = mayRange ? readRange(headers.range, sizeBytes) : null;
  if (range === 'outside') {
    file.close();
    request.failure = 'the range is outside the file';
    reply.code(416).header('Content-Range', `bytes */${sizeBytes}`);
    return reply.send(
      refusal(416, `the range ${headers.range} is outside the file, which has ${sizeBytes} bytes`).body,
    );
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes };
  if (range) reply.code(206).header('Content-Range', `bytes ${start}-${end - 1}/${sizeBytes}`);
  reply
    .type('application/octet-stream')
    .header('Content-Length', end - start)
    .header('Content-Disposition', contentDisposition('attachment', path));
  await sendBytes(request, reply, file, start, end);
  return reply;
}

/**
 * Sends the bytes of a file.
 * After a failure it closes the connection, because the status was already sent.
 */
async function sendBytes(
  request: FastifyRequest,
  reply: FastifyReply,
  file: OpenFile,
  start: number,
  end: number,
): Promise<void> {
  reply.hijack();
  const { raw } = reply;
  const headers = Object.entries(reply.getHeaders()).flatMap(([name, value]) => [name, String(value)]);
  raw.writeHead(reply.statusCode, headers);
  if (start === end || request.method === 'HEAD') {
    file.close();
    raw.end();
    return;
  }
  try {
    await pipeline(file.read(start, end), new Exactly(end - start), raw);
  } catch (error) {
    request.failure = `the download was interrupted: ${messageOf(error)}`;
    raw.destroy();
  }
}

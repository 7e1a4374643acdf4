import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import type { FileEntry } from '../../sandbox/access.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { formatMode } from './file-fields.ts';
import { sendFile } from './files-download.ts';
import { receiveFile } from './files-upload.ts';
import { FILE_DOCS } from './io-docs.ts';
import { DOWNLOAD_QUERY, FILES_QUERY, MKDIR_QUERY } from './queries.ts';

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

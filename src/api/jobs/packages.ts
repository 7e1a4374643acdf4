import type { FastifyInstance, FastifyRequest } from 'fastify';
import { invalidRequest, notFound } from '../../core/error.ts';
import type { JobPackages } from '../../jobs/packages.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { JOB_DOCS } from './docs.ts';

interface ByName {
  Params: { protocol: string; name: string };
}

const ARCHIVE = /\bapplication\/(octet-stream|zip|gzip)\b/;
/**
 * Adds the routes for uploaded files of jobs. The entry bounds the time of an upload.
 * `GET` answers with an empty body if the package exists, as Ray's client expects. A client that accepts
 * `application/octet-stream` gets the content.
 */
export function addPackageRoutes(app: FastifyInstance, packages: JobPackages): void {
  app.register(async scope => {
    // The handler streams the body to the disk, so that the whole body is never in memory.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));

    for (const end of ['', '/']) {
      const url = `/api/packages/:protocol/:name${end}`;
      const docs = end === '' ? { get: JOB_DOCS.hasPackage, put: JOB_DOCS.putPackage } : {};
      scope.get<ByName>(
        url,
        { config: { access: 'read', ...(docs.get && { docs: docs.get }) } },
        async (request, reply) => {
          const { tenant, params } = request;
          checkProtocol(request);
          const isAsked = !ARCHIVE.test(request.headers.accept ?? '');
          if (isAsked && (await packages.has(tenant, params.name))) return reply.code(200).send('');
          const found = isAsked ? null : await packages.find(tenant, params.name);
          if (!found) throw notFound(`Package gcs://${params.name} does not exist`);
          return reply
            .type('application/octet-stream')
            .header('Content-Length', found.bytes)
            .send(await packages.read(tenant, params.name));
        },
      );

      scope.put<ByName>(
        url,
        { config: { access: 'write', livesWith: LIVES_WITH_WORKER, ...(docs.put && { docs: docs.put }) } },
        async (request, reply) => {
          try {
            checkProtocol(request);
            if (Number(request.headers['content-length'] ?? 0) > packages.maxBytes) throw packages.tooLarge();
            await packages.write(request.tenant, request.params.name, request.raw);
            return reply.code(200).send('');
          } finally {
            // Reads and discards a refused body, so that the client can read the reason.
            request.raw.resume();
          }
        },
      );
    }
  });
}

function checkProtocol(request: FastifyRequest<ByName>): void {
  const { protocol } = request.params;
  if (protocol !== 'gcs')
    throw invalidRequest(`packages are kept under gcs, not under ${JSON.stringify(protocol.slice(0, 40))}`);
}

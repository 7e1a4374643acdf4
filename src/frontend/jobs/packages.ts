import type { FastifyInstance, FastifyRequest } from 'fastify';
import { invalidRequest, notFound } from '../../core/error.ts';
import type { Packages } from '../../jobs/packages.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { JOB_DOCS } from './docs.ts';

interface ByName {
  Params: { protocol: string; name: string };
}

const ARCHIVE = /\bapplication\/(octet-stream|zip|gzip)\b/;
/**
 * Uploaded files of jobs; how long an upload may take is bounded by the entry. `GET` says with an empty body whether a package is there, as Ray's client expects; a caller that
 * accepts `application/octet-stream` gets what is in it.
 */
export function addPackageRoutes(app: FastifyInstance, packages: Packages): void {
  app.register(async scope => {
    // Straight to the disk: the body is never in memory as a whole.
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
            // Reads and drops a refused body, so that its sender gets to read why.
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

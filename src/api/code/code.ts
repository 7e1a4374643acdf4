import type { FastifyInstance } from 'fastify';
import { type CodePackage, type CodePackages, packageNotFound, type Unpacker } from '../../code/code-packages.ts';
import { codeUrl } from '../../core/code-package.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { CODE_DOCS, CODE_QUERY } from './docs.ts';

export interface CodeRoutesOptions {
  readonly packages: CodePackages;
  readonly unpacker: Unpacker;
}

interface ByName {
  Params: { sha256: string };
}

/**
 * Adds the routes for uploaded code, which is named by its SHA-256. The entry bounds the time of an upload.
 */
export function addCodeRoutes(app: FastifyInstance, { packages, unpacker }: CodeRoutesOptions): void {
  app.register(async scope => {
    // The handler streams the body to the disk, so that the whole body is never in memory.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    scope.put<ByName>(
      '/api/code/:sha256',
      { config: { access: 'write', noEnvironments: true, livesWith: LIVES_WITH_WORKER, docs: CODE_DOCS.put } },
      async ({ tenant, params, headers, raw }) => {
        try {
          if (Number(headers['content-length'] ?? 0) > packages.maxBytes) throw packages.tooLarge();
          return { code: 200, package: record(await packages.put(tenant, params.sha256, raw, unpacker)) };
        } finally {
          // Reads and discards a body that was refused or is stored already, so that the client can read the
          // answer.
          raw.resume();
        }
      },
    );
  });

  app.get<ByName>(
    '/api/code/:sha256',
    { config: { access: 'read', noEnvironments: true, docs: CODE_DOCS.get } },
    async ({ tenant, params }) => {
      const found = await packages.find(tenant, params.sha256);
      if (found === null) throw packageNotFound(params.sha256);
      return { code: 200, package: record(found) };
    },
  );

  app.get<{ Querystring: Sent }>(
    '/api/code',
    { config: { access: 'read', noEnvironments: true, docs: CODE_DOCS.list } },
    async ({ tenant, query }) => {
      const { cursor, limit } = readParameters(CODE_QUERY, query);
      // One record more than requested shows whether there is a next page.
      const found = await packages.list(tenant, cursor, limit + 1);
      const page = found.slice(0, limit);
      const next = found.length > limit ? (page.at(-1)?.sha256 ?? null) : null;
      return { code: 200, packages: page.map(record), next_cursor: next };
    },
  );

  app.delete<ByName>(
    '/api/code/:sha256',
    { config: { access: 'write', noEnvironments: true, docs: CODE_DOCS.delete } },
    async ({ tenant, params }) => {
      await packages.remove(tenant, params.sha256);
      return { code: 200, status: 'deleted' };
    },
  );
}

function record({ sha256, bytes, createdAtMs, usedAtMs }: CodePackage): Record<string, unknown> {
  return {
    sha256,
    source: codeUrl(sha256),
    bytes,
    created_at: new Date(createdAtMs).toISOString(),
    used_at: new Date(usedAtMs).toISOString(),
  };
}

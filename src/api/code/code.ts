import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { type CodePackage, type CodePackages, packageNotFound, type Unpacker } from '../../code/code-packages.ts';
import { codeUrl, isSha256, SHA256_PATTERN } from '../../core/code-package.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters, readParameters, type Sent } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { badQuery, integer, parsed } from '../query.ts';

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

/** The query of a list of code packages. */
export const CODE_QUERY = {
  limit: integer({ min: 1, max: LIMITS.agentList.max }, LIMITS.agentList.default),
  cursor: parsed<string>(
    {
      type: 'string',
      pattern: `${SHA256_PATTERN}|^$`,
      description: 'The `next_cursor` of the page before.',
    },
    '',
    (text, name) => {
      if (!isSha256(text)) throw badQuery(name, 'the next_cursor of a page before', text);
      return text;
    },
  ),
};

const tags = ['code'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Sha256 = Type.String({ pattern: SHA256_PATTERN, description: 'SHA-256 of the archive.' });
const bySha256 = Type.Object({ sha256: Sha256 });
const Package = Type.Object(
  {
    sha256: Sha256,
    source: Type.String({ description: '`code://<sha256>`: what a mount or a `codePath` names.' }),
    bytes: Type.Integer({ description: 'Of the archive.' }),
    created_at: Type.String({ format: 'date-time' }),
    used_at: Type.String({ format: 'date-time', description: 'Its upload, or when something last began to use it.' }),
  },
  { title: 'CodePackage' },
);
const Answer = Type.Object({ code: Type.Literal(200), package: Package });
const unknown = { 404: errorDocs('`code package not found: <sha256>`') };

/** The OpenAPI documentation of code packages. */
export const CODE_DOCS = {
  put: {
    tags,
    operationId: 'putCode',
    summary: 'Upload code',
    description:
      'A tar.gz or a zip, whose SHA-256 is its name. It is kept once for each tenant, and used as `code://<sha256>`: as the source of a mount of an agent, or as `codePath` of a function with `storageType: package`. One that already exists is not read again.',
    params: bySha256,
    consumes: ['application/octet-stream'],
    body: Type.Unsafe({ type: 'string', format: 'binary' }),
    response: {
      200: json('It is kept.', Answer),
      413: errorDocs('It is too large.'),
      429: errorDocs('The tenant has as much as it may.'),
      503: errorDocs('It could not be stored.'),
    },
  },
  get: {
    tags,
    operationId: 'getCode',
    summary: 'Whether a code package is there, and its facts',
    params: bySha256,
    response: { 200: json('It is there.', Answer), ...unknown },
  },
  list: {
    tags,
    operationId: 'listCode',
    summary: 'List the code packages of the tenant, ordered by SHA-256',
    querystring: describeParameters(CODE_QUERY),
    response: {
      200: json(
        'One page.',
        Type.Object({
          code: Type.Literal(200),
          packages: Type.Array(Package),
          next_cursor: Type.Union([Type.String(), Type.Null()]),
        }),
      ),
    },
  },
  delete: {
    tags,
    operationId: 'deleteCode',
    summary: 'Delete a code package',
    params: bySha256,
    response: {
      200: json('The package was deleted.', Type.Object({ code: Type.Literal(200), status: Type.Literal('deleted') })),
      ...unknown,
      409: errorDocs('A function or an agent refers to it; the message names one.'),
    },
  },
} as const satisfies Record<string, RouteDocs>;

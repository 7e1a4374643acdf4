import type { FastifyInstance } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { failAtFirst } from '../core/json.ts';
import { oneOf } from '../core/kind.ts';
import { object, optional, type ValueOf } from '../core/shape.ts';
import { withWarnings } from '../http/answer.ts';
import { errorDocs } from '../http/docs.ts';
import { readRequest } from '../http/request.ts';
import type { RouteDocs } from '../http/route-config.ts';
import type { ApiKey, ApiKeys } from '../registry/api-keys.ts';

/** Keys that clients of a foreign protocol have as credentials. */
export interface KeyRoutes {
  /** Path of the list; the path of a key is below it. */
  readonly path: '/api/e2b/keys' | '/api/aws/keys';
  readonly keys: Pick<ApiKeys, 'list' | 'remove'>;
  /** Makes a key. `secrets`: members of the answer that no later answer contains. */
  readonly create: (
    tenant: string,
    role: ApiKey['role'],
  ) => Promise<{ readonly key: ApiKey; readonly secrets: Readonly<Record<string, string>> }>;
  readonly docs: {
    readonly tag: string;
    /** Name of a key in the ids of operations, in titles and in errors. */
    readonly id: string;
    readonly name: string;
    readonly role: string;
    readonly create: Required<Pick<RouteDocs, 'summary' | 'description'>>;
    readonly list: string;
    readonly remove: string;
    readonly secrets: Readonly<Record<string, TSchema>>;
  };
}

/** Adds the routes that make, list and delete keys. */
export function addRoutesOfKeys(app: FastifyInstance, { path, keys, create, docs: texts }: KeyRoutes): void {
  const noEnvironments = true;
  const fields = { role: optional(oneOf(['developer', 'user', 'viewer']), 'developer', texts.role) };
  const shape = object<ValueOf<typeof fields>>(fields);
  const docs = docsOf(texts, shape.describe());
  app.post(path, { config: { access: 'write', noEnvironments, docs: docs.create } }, async request => {
    const read = (body: Parameters<typeof shape.read>[0]) =>
      shape.read(body, '', failAtFirst) as ValueOf<typeof fields>;
    const { role } = request.body === undefined ? read({}) : readRequest(request, shape, read);
    const { key, secrets } = await create(request.tenant, role);
    return withWarnings({ code: 200, key: record(key), ...secrets }, request.warnings);
  });

  app.get(path, { config: { access: 'read', noEnvironments, docs: docs.list } }, async ({ tenant }) => ({
    code: 200,
    keys: (await keys.list(tenant)).map(record),
  }));

  app.delete<{ Params: { id: string } }>(
    `${path}/:id`,
    { config: { access: 'write', noEnvironments, docs: docs.delete } },
    async ({ tenant, params }) => {
      await keys.remove(tenant, params.id);
      return { code: 200, status: 'deleted' };
    },
  );
}

function record({ id, role, createdAtMs }: ApiKey): Record<string, unknown> {
  return { id, role, created_at: new Date(createdAtMs).toISOString() };
}

const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });

function docsOf({ tag, id, name, create, list, remove, secrets }: KeyRoutes['docs'], body: object) {
  const tags = [tag];
  const Record = Type.Object(
    {
      id: Type.String({ description: 'Names the key in later requests. It opens nothing.' }),
      role: Type.String(),
      created_at: Type.String({ format: 'date-time' }),
    },
    { title: id },
  );
  return {
    create: {
      tags,
      operationId: `create${id}`,
      ...create,
      body,
      isBodyOptional: true,
      response: {
        200: json('The key was made.', Type.Object({ code: Type.Literal(200), key: Record, ...secrets })),
        429: errorDocs('The tenant has as many as it may.'),
      },
    },
    list: {
      tags,
      operationId: `list${id}s`,
      summary: list,
      response: {
        200: json('All of them, oldest first.', Type.Object({ code: Type.Literal(200), keys: Type.Array(Record) })),
      },
    },
    delete: {
      tags,
      operationId: `delete${id}`,
      summary: remove,
      params: Type.Object({ id: Type.String() }),
      response: {
        200: json('The key was deleted.', Type.Object({ code: Type.Literal(200), status: Type.Literal('deleted') })),
        404: errorDocs(`\`${name} not found: <id>\``),
      },
    },
  } satisfies Record<string, RouteDocs>;
}

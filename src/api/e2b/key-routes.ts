import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { failAtFirst } from '../../core/json.ts';
import { oneOf } from '../../core/kind.ts';
import { object, optional, type ValueOf } from '../../core/shape.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import type { ApiKey, ApiKeys } from '../../registry/api-keys.ts';

export type KeyStore = Pick<ApiKeys, 'create' | 'find' | 'list' | 'remove'>;

const KEY_FIELDS = {
  role: optional(
    oneOf(['developer', 'user', 'viewer']),
    'developer',
    'The role of clients with the key: `viewer` lists sandboxes, `developer` may do everything.',
  ),
};
const KEY_CREATE = object<ValueOf<typeof KEY_FIELDS>>(KEY_FIELDS);

/** Adds the routes of API keys, which are credentials of the E2B protocol only. */
export function addKeyRoutes(app: FastifyInstance, keys: KeyStore): void {
  const noEnvironments = true;
  app.post('/api/e2b/keys', { config: { access: 'write', noEnvironments, docs: DOCS.create } }, async request => {
    const read = (body: Parameters<typeof KEY_CREATE.read>[0]) =>
      KEY_CREATE.read(body, '', failAtFirst) as ValueOf<typeof KEY_FIELDS>;
    const { role } = request.body === undefined ? read({}) : readRequest(request, KEY_CREATE, read);
    const { key, text } = await keys.create(request.tenant, role);
    return withWarnings({ code: 200, key: record(key), value: text }, request.warnings);
  });

  app.get('/api/e2b/keys', { config: { access: 'read', noEnvironments, docs: DOCS.list } }, async ({ tenant }) => ({
    code: 200,
    keys: (await keys.list(tenant)).map(record),
  }));

  app.delete<{ Params: { id: string } }>(
    '/api/e2b/keys/:id',
    { config: { access: 'write', noEnvironments, docs: DOCS.delete } },
    async ({ tenant, params }) => {
      await keys.remove(tenant, params.id);
      return { code: 200, status: 'deleted' };
    },
  );
}

function record({ id, role, createdAtMs }: ApiKey): Record<string, unknown> {
  return { id, role, created_at: new Date(createdAtMs).toISOString() };
}

const tags = ['e2b'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Record = Type.Object(
  {
    id: Type.String({ description: 'Names the key in later requests. It opens nothing.' }),
    role: Type.String(),
    created_at: Type.String({ format: 'date-time' }),
  },
  { title: 'ApiKey' },
);

const DOCS = {
  create: {
    tags,
    operationId: 'createApiKey',
    summary: 'Make a key for clients of the E2B protocol',
    description: 'The key works at once, for requests below `/e2b` only. No later answer contains its text.',
    body: KEY_CREATE.describe(),
    isBodyOptional: true,
    response: {
      200: json(
        'The key was made.',
        Type.Object({
          code: Type.Literal(200),
          key: Record,
          value: Type.String({ description: 'The key: `e2b_` and 40 hexadecimal digits.' }),
        }),
      ),
      429: errorDocs('The tenant has as many as it may.'),
    },
  },
  list: {
    tags,
    operationId: 'listApiKeys',
    summary: 'List the API keys of the tenant, without their texts',
    response: {
      200: json('All of them, oldest first.', Type.Object({ code: Type.Literal(200), keys: Type.Array(Record) })),
    },
  },
  delete: {
    tags,
    operationId: 'deleteApiKey',
    summary: 'Delete an API key, which opens nothing from then on',
    params: Type.Object({ id: Type.String() }),
    response: {
      200: json('The key was deleted.', Type.Object({ code: Type.Literal(200), status: Type.Literal('deleted') })),
      404: errorDocs('`API key not found: <id>`'),
    },
  },
} as const satisfies Record<string, RouteDocs>;

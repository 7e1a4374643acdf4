import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { failAtFirst } from '../../core/json.ts';
import { oneOf } from '../../core/kind.ts';
import { object, optional, type ValueOf } from '../../core/shape.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import type { ApiKey } from '../../registry/api-keys.ts';
import type { AwsKeys } from '../../registry/aws-keys.ts';

export type AwsKeyStore = Pick<AwsKeys, 'create' | 'find' | 'list' | 'remove'>;

const KEY_FIELDS = {
  role: optional(
    oneOf(['developer', 'user', 'viewer']),
    'developer',
    'The role of clients with the key: `viewer` lists functions, `user` also calls them.',
  ),
};
const KEY_CREATE = object<ValueOf<typeof KEY_FIELDS>>(KEY_FIELDS);

/** Adds the routes of keys that sign requests to the API of AWS Lambda. */
export function addAwsKeyRoutes(app: FastifyInstance, keys: AwsKeyStore): void {
  const noEnvironments = true;
  app.post('/api/aws/keys', { config: { access: 'write', noEnvironments, docs: DOCS.create } }, async request => {
    const read = (body: Parameters<typeof KEY_CREATE.read>[0]) =>
      KEY_CREATE.read(body, '', failAtFirst) as ValueOf<typeof KEY_FIELDS>;
    const { role } = request.body === undefined ? read({}) : readRequest(request, KEY_CREATE, read);
    const { key, accessKeyId, secret } = await keys.create(request.tenant, role);
    const answer = { code: 200, key: record(key), access_key_id: accessKeyId, secret_access_key: secret };
    return withWarnings(answer, request.warnings);
  });

  app.get('/api/aws/keys', { config: { access: 'read', noEnvironments, docs: DOCS.list } }, async ({ tenant }) => ({
    code: 200,
    keys: (await keys.list(tenant)).map(record),
  }));

  app.delete<{ Params: { id: string } }>(
    '/api/aws/keys/:id',
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

const tags = ['lambda'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Record = Type.Object(
  {
    id: Type.String({ description: 'Names the key in later requests. It opens nothing.' }),
    role: Type.String(),
    created_at: Type.String({ format: 'date-time' }),
  },
  { title: 'AwsKey' },
);

const DOCS = {
  create: {
    tags,
    operationId: 'createAwsKey',
    summary: 'Make a key for clients of AWS Lambda',
    description: 'The key signs requests below `/lambda` only. No later answer contains its secret.',
    body: KEY_CREATE.describe(),
    isBodyOptional: true,
    response: {
      200: json(
        'The key was made.',
        Type.Object({
          code: Type.Literal(200),
          key: Record,
          access_key_id: Type.String({ description: '`AWS_ACCESS_KEY_ID` of clients.' }),
          secret_access_key: Type.String({ description: '`AWS_SECRET_ACCESS_KEY` of clients.' }),
        }),
      ),
      429: errorDocs('The tenant has as many as it may.'),
    },
  },
  list: {
    tags,
    operationId: 'listAwsKeys',
    summary: 'List the AWS keys of the tenant, without their secrets',
    response: {
      200: json('All of them, oldest first.', Type.Object({ code: Type.Literal(200), keys: Type.Array(Record) })),
    },
  },
  delete: {
    tags,
    operationId: 'deleteAwsKey',
    summary: 'Delete an AWS key, which signs nothing from then on',
    params: Type.Object({ id: Type.String() }),
    response: {
      200: json('The key was deleted.', Type.Object({ code: Type.Literal(200), status: Type.Literal('deleted') })),
      404: errorDocs('`AWS key not found: <id>`'),
    },
  },
} as const satisfies Record<string, RouteDocs>;

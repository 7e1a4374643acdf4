import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { failAtFirst } from '../../core/json.ts';
import { SECRET_NAME_PATTERN, SECRET_PUT } from '../../core/secret.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import type { Secret, Secrets } from '../../registry/secrets.ts';

export type SecretStore = Pick<Secrets, 'put' | 'list' | 'remove'>;

interface ByName {
  Params: { name: string };
}

/** Adds the routes of secrets. No route returns a value. */
export function addSecretRoutes(app: FastifyInstance, secrets: SecretStore): void {
  app.put<ByName>(
    '/api/secrets/:name',
    { config: { access: 'write', noEnvironments: true, docs: DOCS.put } },
    async request => {
      const { value } = readRequest(
        request,
        SECRET_PUT,
        body => SECRET_PUT.read(body, '', failAtFirst) as { value: string },
      );
      const secret = record(await secrets.put(request.tenant, request.params.name, value));
      return withWarnings({ code: 200, secret }, request.warnings);
    },
  );

  app.get(
    '/api/secrets',
    { config: { access: 'read', noEnvironments: true, docs: DOCS.list } },
    async ({ tenant }) => ({
      code: 200,
      secrets: (await secrets.list(tenant)).map(record),
    }),
  );

  app.delete<ByName>(
    '/api/secrets/:name',
    { config: { access: 'write', noEnvironments: true, docs: DOCS.delete } },
    async ({ tenant, params }) => {
      await secrets.remove(tenant, params.name);
      return { code: 200, status: 'deleted' };
    },
  );
}

function record({ name, createdAtMs, updatedAtMs, isReadable }: Secret): Record<string, unknown> {
  return {
    name,
    created_at: new Date(createdAtMs).toISOString(),
    updated_at: new Date(updatedAtMs).toISOString(),
    readable: isReadable,
  };
}

const tags = ['secrets'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const byName = Type.Object({ name: Type.String({ pattern: SECRET_NAME_PATTERN }) });
const Record = Type.Object(
  {
    name: Type.String(),
    created_at: Type.String({ format: 'date-time' }),
    updated_at: Type.String({ format: 'date-time', description: 'When its value was last written.' }),
    readable: Type.Boolean({ description: 'Whether this service has the key that it is encrypted with.' }),
  },
  { title: 'Secret' },
);

const DOCS = {
  put: {
    tags,
    operationId: 'putSecret',
    summary: 'Write a secret',
    description:
      'Makes it, or gives it another value, which sandboxes have that start from now on. Nobody reads it back. An environment refers to it as `{"secret": "<name>"}`.',
    params: byName,
    body: SECRET_PUT.describe(),
    response: {
      200: json('It is kept.', Type.Object({ code: Type.Literal(200), secret: Record })),
      409: errorDocs('This service keeps no secrets: it lacks a key.'),
      429: errorDocs('The tenant has as many as it may.'),
    },
  },
  list: {
    tags,
    operationId: 'listSecrets',
    summary: 'List the secrets of the tenant, without their values',
    response: {
      200: json('All of them, ordered by name.', Type.Object({ code: Type.Literal(200), secrets: Type.Array(Record) })),
    },
  },
  delete: {
    tags,
    operationId: 'deleteSecret',
    summary: 'Delete a secret',
    params: byName,
    response: {
      200: json('The secret was deleted.', Type.Object({ code: Type.Literal(200), status: Type.Literal('deleted') })),
      404: errorDocs('`secret not found: <name>`'),
      409: errorDocs('A function, an agent, a job or a schedule refers to it; the message names one.'),
    },
  },
} as const satisfies Record<string, RouteDocs>;

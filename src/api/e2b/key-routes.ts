import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { ApiKeys } from '../../registry/api-keys.ts';
import { addRoutesOfKeys } from '../key-routes.ts';

export type KeyStore = Pick<ApiKeys, 'create' | 'find' | 'list' | 'remove'>;

/** Adds the routes of API keys, which are credentials of the E2B protocol only. */
export function addKeyRoutes(app: FastifyInstance, keys: KeyStore): void {
  addRoutesOfKeys(app, {
    path: '/api/e2b/keys',
    keys,
    create: async (tenant, role) => {
      const { key, text } = await keys.create(tenant, role);
      return { key, secrets: { value: text } };
    },
    docs: {
      tag: 'e2b',
      id: 'ApiKey',
      name: 'API key',
      role: 'The role of clients with the key: `viewer` lists sandboxes, `developer` may do everything.',
      create: {
        summary: 'Make a key for clients of the E2B protocol',
        description: 'The key works at once, for requests below `/e2b` only. No later answer contains its text.',
      },
      list: 'List the API keys of the tenant, without their texts',
      remove: 'Delete an API key, which opens nothing from then on',
      secrets: { value: Type.String({ description: 'The key: `e2b_` and 40 hexadecimal digits.' }) },
    },
  });
}

import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { AwsKeys } from '../../registry/aws-keys.ts';
import { addRoutesOfKeys } from '../key-routes.ts';

export type AwsKeyStore = Pick<AwsKeys, 'create' | 'find' | 'list' | 'remove'>;

/** Adds the routes of keys that sign requests to the API of AWS Lambda. */
export function addAwsKeyRoutes(app: FastifyInstance, keys: AwsKeyStore): void {
  addRoutesOfKeys(app, {
    path: '/api/aws/keys',
    keys,
    create: async (tenant, role) => {
      const { key, accessKeyId, secret } = await keys.create(tenant, role);
      return { key, secrets: { access_key_id: accessKeyId, secret_access_key: secret } };
    },
    docs: {
      tag: 'lambda',
      id: 'AwsKey',
      name: 'AWS key',
      role: 'The role of clients with the key: `viewer` lists functions, `user` also calls them.',
      create: {
        summary: 'Make a key for clients of AWS Lambda',
        description: 'The key signs requests below `/lambda` only. No later answer contains its secret.',
      },
      list: 'List the AWS keys of the tenant, without their secrets',
      remove: 'Delete an AWS key, which signs nothing from then on',
      secrets: {
        access_key_id: Type.String({ description: '`AWS_ACCESS_KEY_ID` of clients.' }),
        secret_access_key: Type.String({ description: '`AWS_SECRET_ACCESS_KEY` of clients.' }),
      },
    },
  });
}

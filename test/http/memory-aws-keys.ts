import { randomBytes, randomUUID } from 'node:crypto';
import type { AwsKeyStore } from '../../src/api/lambda/key-routes.ts';
import { notFound } from '../../src/core/error.ts';
import type { ApiKey } from '../../src/registry/api-keys.ts';
import type { AwsKey } from '../../src/registry/aws-keys.ts';

/** Keys of AWS clients in memory, so that tests of routes need no database. */
export function memoryAwsKeys(): AwsKeyStore {
  const keys = new Map<string, ApiKey & AwsKey>();
  return {
    async create(tenant, role) {
      const key = { id: `aws-${randomUUID()}`, role, createdAtMs: Date.now() };
      const accessKeyId = `RKAW${randomBytes(20).toString('hex').toUpperCase()}`;
      const secret = randomBytes(32).toString('base64url');
      keys.set(accessKeyId, { ...key, tenant, secret });
      return { key, accessKeyId, secret };
    },
    find: async accessKeyId => keys.get(accessKeyId) ?? null,
    list: async tenant => [...keys.values()].filter(key => key.tenant === tenant),
    async remove(tenant, id) {
      const [found] = [...keys].find(([, key]) => key.tenant === tenant && key.id === id) ?? [];
      if (found === undefined) throw notFound(`AWS key not found: ${id}`);
      keys.delete(found);
    },
  };
}

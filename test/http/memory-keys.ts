import { randomBytes, randomUUID } from 'node:crypto';
import type { KeyStore } from '../../src/api/e2b/key-routes.ts';
import { notFound } from '../../src/core/error.ts';
import type { ApiKey } from '../../src/registry/api-keys.ts';

/** Keys of the E2B protocol in memory, so that tests of routes need no database. */
export function memoryKeys(): KeyStore {
  const keys = new Map<string, ApiKey & { readonly tenant: string }>();
  return {
    async create(tenant, role) {
      const key = { id: randomUUID(), role, createdAtMs: Date.now() };
      const text = `e2b_${randomBytes(20).toString('hex')}`;
      keys.set(text, { ...key, tenant });
      return { key, text };
    },
    find: async text => keys.get(text) ?? null,
    list: async tenant => [...keys.values()].filter(key => key.tenant === tenant),
    async remove(tenant, id) {
      const [found] = [...keys].find(([, key]) => key.tenant === tenant && key.id === id) ?? [];
      if (found === undefined) throw notFound(`API key not found: ${id}`);
      keys.delete(found);
    },
  };
}

import type { FastifyInstance } from 'fastify';
import { META_CODES } from '../core/codes.ts';
import { createEntry, type EntryOptions } from '../http/entry.ts';
import type { Registry } from '../registry/registry.ts';
import { addPoolRoutes, type PoolTenants } from './pools/pools.ts';
import { addFunctionRoutes, addRegisterRoute } from './registry/functions.ts';
import { metaErrors } from './registry/requests.ts';
import { addReservationRoutes } from './registry/reservations.ts';

export interface MetaOptions extends Omit<EntryOptions, 'name' | 'title' | 'errors' | 'wrongRequestCode'> {
  readonly registry: Registry;
  readonly poolTenants: PoolTenants;
}

/** Builds HTTP entry 2, the meta_service. Does not listen: `server.ts` does, and tests inject requests. */
export function createMeta(options: MetaOptions): FastifyInstance {
  const { registry, poolTenants } = options;
  const app = createEntry({
    ...options,
    name: 'meta_service',
    title: 'Rookery meta_service',
    errors: metaErrors,
    wrongRequestCode: META_CODES.invalid.code,
  });
  app.register(async scope => addMetaRoutes(scope, registry, poolTenants));
  return app;
}

export function addMetaRoutes(scope: FastifyInstance, registry: Registry, poolTenants: PoolTenants): void {
  addRegisterRoute(scope, registry);
  addFunctionRoutes(scope, registry);
  addReservationRoutes(scope, registry);
  addPoolRoutes(scope, registry.pools, poolTenants);
}

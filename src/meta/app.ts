import type { FastifyInstance } from 'fastify';
import { META_CODES } from '../core/codes.ts';
import { createEntry, type EntryOptions } from '../http/entry.ts';
import type { Registry } from '../registry/registry.ts';
import { metaErrors } from './errors.ts';
import { addFunctionRoutes } from './functions.ts';
import { addPoolRoutes } from './pools.ts';
import { addRegisterRoute } from './register.ts';
import { addReservationRoutes } from './reservations.ts';

export interface MetaOptions extends Omit<EntryOptions, 'name' | 'title' | 'errors' | 'wrongRequestCode'> {
  readonly registry: Registry;
}

/** HTTP entry 2, the meta_service. It never listens: `server.ts` does, tests inject. */
export function createMeta(options: MetaOptions): FastifyInstance {
  const { registry } = options;
  const app = createEntry({
    ...options,
    name: 'meta_service',
    title: 'Rookery meta_service',
    errors: metaErrors,
    wrongRequestCode: META_CODES.invalid.code,
  });
  app.register(async scope => addMetaRoutes(scope, registry));
  return app;
}

export function addMetaRoutes(scope: FastifyInstance, registry: Registry): void {
  addRegisterRoute(scope, registry);
  addFunctionRoutes(scope, registry);
  addReservationRoutes(scope, registry);
  addPoolRoutes(scope, registry.pools);
}

import type { FastifyInstance } from 'fastify';
import { createEntry, type EntryOptions } from '../http/entry.ts';
import type { Tracer } from '../telemetry/tracer.ts';
import { addExecRoute } from './agent-exec.ts';
import { addInvokeRoute, type InvokeRouteOptions } from './agent-invoke.ts';
import { addLogsRoute } from './agent-logs.ts';
import { type AgentRoutesOptions, addAgentRoutes } from './agents.ts';
import { frontendErrors } from './errors.ts';
import type { FunctionRoutesOptions } from './function-invoke.ts';
import { addFunctionRoutes } from './functions.ts';

/** What both entries get alike from whoever builds them. */
export type SharedEntryOptions = Omit<EntryOptions, 'name' | 'title' | 'errors' | 'badTenantCode'>;

export interface FrontendOptions extends SharedEntryOptions, AgentRoutesOptions {
  readonly tracer: Tracer;
  readonly invoked: InvokeRouteOptions['invoked'];
  /** The function service; absent: this entry has none. */
  readonly service?: FunctionRoutesOptions;
}

/** HTTP entry 1. It never listens: `server.ts` does, tests inject. */
export function createFrontend(options: FrontendOptions): FastifyInstance {
  const app = createEntry({
    ...options,
    name: 'frontend',
    title: 'Rookery frontend',
    errors: frontendErrors,
    badTenantCode: 400,
  });
  app.register(async scope => {
    addInvokeRoute(scope, options);
    addAgentRoutes(scope, options);
    addLogsRoute(scope, options.instances);
    addExecRoute(scope, options.instances);
  });
  const { service } = options;
  if (service) app.register(async scope => addFunctionRoutes(scope, service));
  return app;
}

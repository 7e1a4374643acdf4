import websocket from '@fastify/websocket';
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
import { addJobRoutes, type JobRoutesOptions } from './jobs.ts';

/** What both entries get alike from whoever builds them. */
export type SharedEntryOptions = Omit<EntryOptions, 'name' | 'title' | 'errors' | 'badTenantCode'>;

export interface FrontendOptions extends SharedEntryOptions, AgentRoutesOptions {
  readonly tracer: Tracer;
  readonly invoked: InvokeRouteOptions['invoked'];
  /** The function service; absent: this entry has none. */
  readonly service?: FunctionRoutesOptions;
  /** Jobs; absent: this entry has none. */
  readonly jobs?: Omit<JobRoutesOptions, 'version'>;
}

/** What one WebSocket message of a caller may hold. */
const MAX_SOCKET_MESSAGE_BYTES = 64 * 1024;

/** HTTP entry 1. It never listens: `server.ts` does, tests inject. */
export function createFrontend(options: FrontendOptions): FastifyInstance {
  const app = createEntry({
    ...options,
    name: 'frontend',
    title: 'Rookery frontend',
    errors: frontendErrors,
    badTenantCode: 400,
  });
  // Before the routes: those with `websocket: true` are its own.
  app.register(websocket, { options: { maxPayload: MAX_SOCKET_MESSAGE_BYTES } });
  app.register(async scope => {
    addInvokeRoute(scope, options);
    addAgentRoutes(scope, options);
    addLogsRoute(scope, options.instances);
    addExecRoute(scope, options.instances);
  });
  const { service, jobs } = options;
  if (service) app.register(async scope => addFunctionRoutes(scope, service));
  if (jobs) app.register(async scope => addJobRoutes(scope, { ...jobs, version: options.version }));
  return app;
}

import type { FastifyInstance } from 'fastify';
import { createEntry, type EntryOptions } from '../http/entry.ts';
import type { Tracer } from '../telemetry/tracer.ts';
import { type AgentRoutesOptions, addAgentRoutes } from './agents/agents.ts';
import { addExecRoute } from './agents/exec.ts';
import { addFileRoutes } from './agents/files.ts';
import { addInvokeRoute, type InvokeRouteOptions } from './agents/invoke.ts';
import { addLogsRoute } from './agents/logs.ts';
import { addTerminalRoute } from './agents/terminal.ts';
import { frontendErrors } from './errors.ts';
import { addFunctionRoutes } from './functions/functions.ts';
import type { FunctionRoutesOptions } from './functions/invoke.ts';
import { addJobRoutes, type JobRoutesOptions } from './jobs/jobs.ts';
import { addPassthroughRoutes, type PassthroughOptions } from './passthrough/passthrough.ts';
import { addWebSockets } from './web-socket.ts';

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
  addWebSockets(app);
  app.register(async scope => {
    addInvokeRoute(scope, options);
    addAgentRoutes(scope, options);
    addLogsRoute(scope, options.instances);
    addExecRoute(scope, options.instances);
    addFileRoutes(scope, options.instances);
    addTerminalRoute(scope, options.instances);
  });
  const { service, jobs } = options;
  app.register(async scope => addPassthroughRoutes(scope, { access: accessFor(options), auth: options.auth }));
  if (service) app.register(async scope => addFunctionRoutes(scope, service));
  if (jobs) app.register(async scope => addJobRoutes(scope, { ...jobs, version: options.version }));
  return app;
}

/** Ways into whatever an instance's id names: an agent, or an instance of a function. */
function accessFor({ instances, service }: FrontendOptions): PassthroughOptions['access'] {
  return async (tenant, id) => {
    const ofFunction = service?.functions.access(service.ownTenantOnly ? tenant : null, id);
    return ofFunction ?? (await instances.access(tenant, id));
  };
}

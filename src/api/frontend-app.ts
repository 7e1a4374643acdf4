import type { FastifyInstance } from 'fastify';
import { AddressHosts } from '../http/access/address-host.ts';
import { HostTurns } from '../http/access/host-turns.ts';
import { SandboxHosts } from '../http/access/sandbox-host.ts';
import type { ErrorTable } from '../http/answer.ts';
import { createEntry, type EntryOptions } from '../http/entry.ts';
import type { Tracer } from '../telemetry/tracer.ts';
import { addClusterRoute, type ClusterRoutesOptions } from './admin/cluster.ts';
import { type AgentRoutesOptions, addAgentRoutes, addExecRoute, addLogsRoute, addStatsRoute } from './agents/agents.ts';
import { addFileEntryRoutes } from './agents/file-entries.ts';
import { addFileRoutes } from './agents/files.ts';
import { addForkRoute } from './agents/forks.ts';
import { addInvokeRoute, type InvokeRouteOptions } from './agents/invoke.ts';
import { addProcessRoutes } from './agents/processes.ts';
import { addWakeBar } from './agents/sleep.ts';
import { addTerminalRoute } from './agents/terminal.ts';
import { addBuildRoutes, type BuildRoutesOptions } from './builds/builds.ts';
import { addCallRoutes, type CallRoutesOptions } from './calls/calls.ts';
import { addCodeRoutes, type CodeRoutesOptions } from './code/code.ts';
import { addInstallationRoutes, type InstallationRoutesOptions } from './dashboard/installation.ts';
import { addSessionRoutes } from './dashboard/session.ts';
import { addE2bRoutes, type E2bOptions, NO_TEMPLATES } from './e2b/e2b.ts';
import { frontendErrors } from './errors.ts';
import { addEventsRoute, type EventRoutesOptions } from './events/events.ts';
import { addFunctionRoutes } from './functions/functions.ts';
import type { FunctionRoutesOptions } from './functions/invoke.ts';
import { addJobRoutes, type JobRoutesOptions } from './jobs/jobs.ts';
import { lambdaErrors } from './lambda/failures.ts';
import { addAwsKeyRoutes } from './lambda/key-routes.ts';
import { addLambdaRoutes, LAMBDA_PREFIX, type LambdaRoutesOptions } from './lambda/lambda.ts';
import { addMcpRoutes, type McpRoutesOptions } from './mcp/mcp.ts';
import { addHistoryRoute, type HistoryRoutesOptions } from './metrics/history.ts';
import { addUsageRoute, type UsageRoutesOptions } from './metrics/usage.ts';
import { type AddressDomain, AddressTargets, type ExposedFunctions } from './passthrough/address-targets.ts';
import { addAddressRoutes } from './passthrough/addresses.ts';
import { addLinkRoutes, LinkSigner } from './passthrough/links.ts';
import { Passage } from './passthrough/passage.ts';
import { addPassthroughRoutes, type PassthroughOptions } from './passthrough/passthrough.ts';
import { addRunCodeRoute } from './passthrough/run-code.ts';
import { addSecretRoutes, type SecretStore } from './secrets/secrets.ts';
import { addDashboardPages, addDocPages } from './static-pages.ts';
import { addWebSockets } from './web-socket.ts';

/** Options that both entries have in common. */
export type SharedEntryOptions = Omit<EntryOptions, 'name' | 'title' | 'errors' | 'wrongRequestCode' | 'addresses'>;

export interface FrontendOptions extends SharedEntryOptions, AgentRoutesOptions {
  readonly tracer: Tracer;
  /** The domain of public URLs, and the key that signs links to them. */
  readonly addresses: { readonly domain: AddressDomain; readonly key: Buffer };
  /** The E2B protocol: the keys of tenants, and the domain of host names of sandboxes. */
  readonly e2b: Pick<E2bOptions, 'keys' | 'domain' | 'templates'>;
  readonly invoked: InvokeRouteOptions['invoked'];
  /** Keeps calls of agents. */
  readonly callSink: InvokeRouteOptions['callSink'];
  /** The history of calls. Absent: this entry does not show it. */
  readonly history?: CallRoutesOptions;
  /** The function service. Absent: this entry has no functions. */
  readonly service?: FunctionRoutesOptions;
  /** The registry and keys for clients of AWS Lambda. Absent: this entry does not serve them. */
  readonly lambda?: Pick<LambdaRoutesOptions, 'registry' | 'code' | 'canChange' | 'keys'>;
  /** The registry, for MCP clients. Absent: their tools are those for sandboxes. */
  readonly mcp?: NonNullable<McpRoutesOptions['functions']>['registry'];
  /** Jobs. Absent: this entry has no jobs. */
  readonly jobs?: Omit<JobRoutesOptions, 'version'>;
  /** Uploaded code. Absent: this entry has no routes for code. */
  readonly code?: CodeRoutesOptions;
  /** Builds of dependencies. Absent: this entry has no routes for builds. */
  readonly builds?: BuildRoutesOptions;
  /** Secrets. Absent: this entry has no routes for secrets. */
  readonly secrets?: SecretStore;
  /** The state of the replicas. Absent: this entry does not show it. */
  readonly cluster?: ClusterRoutesOptions;
  /** Events and history. Absent: this entry has no routes for them. */
  readonly observed?: EventRoutesOptions & HistoryRoutesOptions & UsageRoutesOptions & InstallationRoutesOptions;
  /** The directory of the dashboard's files. Absent: this entry has no dashboard. */
  readonly dashboard?: string;
  /** The directory of the rendered documents. Absent: this entry serves no documents. */
  readonly documents?: string;
  /**
   * The routes of the meta_service, below `/api/meta`. The dashboard needs them, because a page may only call
   * its own origin.
   */
  readonly meta?: { readonly add: (scope: FastifyInstance) => void; readonly errors: ErrorTable };
}

/** Builds HTTP entry 1, the frontend. Does not listen: `server.ts` does, and tests inject requests. */
export function createFrontend(options: FrontendOptions): FastifyInstance {
  const { domain, key } = options.addresses;
  const app = createEntry({
    ...options,
    addresses: new HostTurns(
      new AddressHosts(withoutPort(domain.domain)),
      new SandboxHosts(options.e2b.domain && withoutPort(options.e2b.domain)),
    ),
    name: 'frontend',
    title: 'Rookery frontend',
    errors: errorsOf(options),
    wrongRequestCode: 400,
  });
  // Must run before the routes with `websocket: true` are added, because the plugin handles them.
  addWebSockets(app);
  app.register(async scope => addAllAgentRoutes(scope, options));
  const { service, jobs, cluster, code, builds, secrets, history, observed, dashboard, documents, meta } = options;
  app.register(async scope => {
    const passage = new Passage(scope);
    addPassthroughRoutes(scope, passage, { access: accessFor(options), auth: options.auth });
    const links = new LinkSigner(key);
    const { instances, auth } = options;
    addRunCodeRoute(scope, passage, { instances, auth });
    const exposed = exposedOf(service);
    addAddressRoutes(scope, passage, { targets: new AddressTargets(instances, exposed), links, auth });
    const ownTenantOnly = service?.ownTenantOnly === true;
    addLinkRoutes(scope, { instances, functions: exposed, ownTenantOnly, links, domain });
    const { executors, images } = options;
    addE2bRoutes(scope, passage, { ...options.e2b, instances, auth, executors, images, key });
  });
  if (service) app.register(async scope => addFunctionRoutes(scope, service));
  const { lambda } = options;
  if (service && lambda) {
    app.register(async scope => addLambdaRoutes(scope, { ...service, ...lambda, auth: options.auth }));
    app.register(async scope => addAwsKeyRoutes(scope, lambda.keys));
  }
  app.register(async scope => addMcpRoutes(scope, mcpOptions(options)));
  if (code) app.register(async scope => addCodeRoutes(scope, code));
  if (builds) app.register(async scope => addBuildRoutes(scope, builds));
  if (secrets) app.register(async scope => addSecretRoutes(scope, secrets));
  if (history) app.register(async scope => addCallRoutes(scope, history));
  if (cluster) app.register(async scope => addClusterRoute(scope, cluster));
  if (observed) {
    app.register(async scope => {
      addEventsRoute(scope, observed);
      addHistoryRoute(scope, { ...observed, instances: options.instances });
      addUsageRoute(scope, observed);
      addInstallationRoutes(scope, observed);
      addSessionRoutes(scope, { auth: options.auth, version: options.version, visibleTo: observed.visibleTo });
    });
  }
  if (dashboard !== undefined) app.register(async scope => addDashboardPages(scope, dashboard));
  if (documents !== undefined) app.register(async scope => addDocPages(scope, documents));
  if (meta) {
    app.register(
      async scope => {
        // The meta_service documents these routes.
        scope.addHook('onRoute', route => {
          const { docs: _, ...config } = route.config ?? {};
          route.config = config;
        });
        meta.add(scope);
      },
      { prefix: META_PREFIX },
    );
  }
  if (jobs) app.register(async scope => addJobRoutes(scope, { ...jobs, version: options.version }));
  return app;
}

function addAllAgentRoutes(scope: FastifyInstance, options: FrontendOptions): void {
  addWakeBar(scope, options.instances);
  addInvokeRoute(scope, options);
  addAgentRoutes(scope, options);
  addLogsRoute(scope, options.instances);
  addExecRoute(scope, options.instances);
  addFileRoutes(scope, options.instances);
  addFileEntryRoutes(scope, options.instances);
  addTerminalRoute(scope, options.instances);
  addProcessRoutes(scope, options.instances);
  addStatsRoute(scope, options.instances);
  const { templates } = options.e2b;
  if (templates) addForkRoute(scope, { ...templates, instances: options.instances });
}

function mcpOptions({ version, instances, executors, images, e2b, service, mcp }: FrontendOptions): McpRoutesOptions {
  const sources = { templates: e2b.templates?.templates ?? NO_TEMPLATES, images };
  const { domain } = e2b;
  const functions = service && mcp && { functions: service.functions, registry: mcp, business: service.business };
  return { version, instances, executors, sources, domain, ...(functions && { functions }) };
}

function withoutPort(domain: string): string {
  return domain.replace(/:\d+$/, '');
}

const META_PREFIX = '/api/meta';

function errorsOf({ meta }: FrontendOptions): ErrorTable {
  return (error, request) => {
    const { url = '' } = request.route;
    if (meta !== undefined && url.startsWith(META_PREFIX)) return meta.errors(error, request);
    return url.startsWith(LAMBDA_PREFIX) ? lambdaErrors(error) : frontendErrors(error);
  };
}

function exposedOf(service: FrontendOptions['service']): ExposedFunctions | null {
  if (service === undefined) return null;
  const { functions, business } = service;
  return {
    business,
    exposed: urn => functions.exposed(urn),
    open: (urn, signal) => functions.open(urn, signal),
  };
}

/** Returns the access to the sandbox of an instance id, which names an agent or a function instance. */
function accessFor({ instances, service }: FrontendOptions): PassthroughOptions['access'] {
  return async (tenant, id) => {
    const ofFunction = service?.functions.access(service.ownTenantOnly ? tenant : null, id);
    return ofFunction ?? (await instances.access(tenant, id));
  };
}

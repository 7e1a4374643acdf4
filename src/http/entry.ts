import type { Socket } from 'node:net';
import swagger from '@fastify/swagger';
import fastify, { type FastifyInstance } from 'fastify';
import { LIMITS } from '../core/limits.ts';
import type { Log } from '../lib/log.ts';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import type { TokenVerifier } from './access/credentials.ts';
import { addGateHook, addRequestFields, createGate, type Gate } from './access/gate.ts';
import { createHostRule, type HostRuleOptions } from './access/host-rule.ts';
import type { HostTurns } from './access/host-turns.ts';
import { addMasking, hidingOwnPaths } from './access/masking.ts';
import { createAccessLog } from './access-log.ts';
import type { ErrorTable } from './answer.ts';
import { addErrorAnswers, answerClientError, answeringRouterErrors } from './answer.ts';
import { documentRoute, withOptionalBodies } from './docs.ts';
import { addForwarding, Forwarding, type ForwardingOptions } from './forwarding.ts';
import type { FastPath } from './hot/fast-path.ts';
import { serveRequests } from './hot/serve-requests.ts';
import { endRefusedUpgrades } from './limits/connections.ts';
import { boundCostlyReads } from './limits/costly-reads.ts';
import { addLimits, DEFAULT_BOUNDS, type EntryBounds } from './limits/entry-limits.ts';
import { checkQueries } from './request.ts';
import { addStartupGate, type StartupBounds } from './startup-gate.ts';
import { addSystemRoutes, type SystemRouteOptions } from './system-routes.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** The fast path for hot routes. `addHotRoute` adds a route to it. */
    fastPath: FastPath;
    /** Checks every request before its route runs. */
    gate: Gate;
    /** Adds a connection of another replica to `server`. The entry bounds and closes it like any other. */
    adopt: (socket: Socket) => void;
  }
}

export interface EntryOptions {
  readonly name: 'frontend' | 'meta_service';
  readonly title: string;
  readonly version: string;
  readonly hosts: HostRuleOptions;
  /** Verifies tokens. null: authentication is off. */
  readonly auth: TokenVerifier | null;
  readonly ready: SystemRouteOptions['ready'];
  /** Resolves after the start. Before, the entry answers only health and metrics. Absent: already started. */
  readonly started?: Promise<void>;
  /** Bounds of the requests that wait for the start. Absent: the usual ones. */
  readonly startupBounds?: StartupBounds;
  readonly metrics: EntryMetrics;
  readonly log: Log;
  readonly slowMs: number;
  /** The answer to a `ServiceError` that a route throws. */
  readonly errors: ErrorTable;
  /** The body's `code` (status 400) for a wrong tenant header and for a path that cannot be decoded. */
  readonly wrongRequestCode: number;
  /** Directories of the service itself. Error answers do not show paths below them. */
  readonly ownDirectories?: readonly string[];
  /**
   * Tenants whose tokens see the metrics of all tenants. Every other token sees its own tenant only.
   * null: every token sees them. Applies only when authentication is on.
   */
  readonly metricsTenants?: readonly string[] | null;
  /** Hosts whose requests do not reach the service's own routes. Absent: there are none. */
  readonly addresses?: HostTurns;
  /** The settings' defaults when absent. */
  readonly bounds?: EntryBounds;
  /** Forwards requests among several replicas. Absent or null: this replica answers all, without a lookup. */
  readonly forwarding?: ForwardingOptions | null;
  /** Enables `plain-connections.ts`. Default: true. Tests set false to compare with `node:http`. */
  readonly readsPlainRequests?: boolean;
}

/** URNs are longer than the router's default of 100. The HTTP parser bounds the request line in any case. */
const MAX_PARAM_CHARS = 16_384;

/**
 * Builds the Fastify instance that both HTTP entries share. Does not listen.
 *
 * Routes are added inside `app.register(async scope => …)`, each with `config: { access, docs }`. The body of
 * a request is a `Buffer` for every content type, or undefined when the request has none. `request.tenant`
 * and `request.traceId` are set. `errors` maps a `ServiceError` that a handler throws to an answer. Any other
 * error becomes a 500 whose cause is logged.
 */
export function createEntry(options: EntryOptions): FastifyInstance {
  const bounds = options.bounds ?? DEFAULT_BOUNDS;
  const app = createRouter(options, bounds);
  const { auth, started, wrongRequestCode, metrics, addresses = null } = options;
  addRequestFields(app, auth !== null);
  const { bodies, connections, unread } = addLimits(app, bounds);
  // Without a listener for upgrades, Node reads an upgrade request as a plain request.
  if (options.name === 'frontend') {
    endRefusedUpgrades(app, request => {
      unread.upgraded(request.socket);
      addresses?.turn(request);
    });
  }
  if (started !== undefined) addStartupGate(app, started, options.startupBounds);

  const forwarding = options.forwarding ? new Forwarding(options.forwarding, bodies) : null;
  const hostRule = createHostRule(options.hosts);
  const gate = createGate({ hostRule, auth, wrongRequestCode, hasPeers: forwarding !== null });
  app.decorate('gate', gate);
  addGateHook(app, gate);
  const hide = hidingOwnPaths(options.ownDirectories ?? []);
  app.addHook('onSend', (request, reply, payload, done) => {
    done(null, reply.statusCode >= 400 && typeof payload === 'string' ? hide(payload, request.body) : payload);
  });
  // Without authentication every request has full rights, so no request has the role of a viewer.
  if (auth !== null) addMasking(app);
  checkQueries(app);
  boundCostlyReads(app);
  // Forwarding comes after the bound on costly reads, which applies on the replica where a request arrives.
  if (forwarding !== null) addForwarding(app, forwarding);

  const { accessLog, uncaught } = observe(app, options);
  serveRequests(app, {
    started,
    readsPlainRequests: options.readsPlainRequests !== false,
    hasAuth: auth !== null,
    gate,
    bodies,
    connections,
    metrics,
    accessLog,
    uncaught,
    hide,
    forwarding,
    addresses,
  });

  app.addHook('onRoute', route => {
    if (route.config?.access === undefined) throw new TypeError(`route ${route.method} ${route.url} names no access`);
  });
  addErrorAnswers(app, options.errors);
  addOpenApi(app, options);
  app.register(async scope => {
    addSystemRoutes(scope, { ready: options.ready, metrics, seesAllMetrics: seesAllMetrics(options) });
  });
  return app;
}

function createRouter({ wrongRequestCode }: EntryOptions, { keepAliveMs }: EntryBounds): FastifyInstance {
  return fastify({
    keepAliveTimeout: keepAliveMs,
    bodyLimit: LIMITS.requestBodyBytes,
    requestTimeout: LIMITS.requestArrivalMs,
    return503OnClosing: false,
    // The Host rule refuses a missing Host, with a body that names the reason.
    http: { requireHostHeader: false, headersTimeout: LIMITS.headersArrivalMs },
    routerOptions: { maxParamLength: MAX_PARAM_CHARS },
    schemaController: { compilersFactory: { buildValidator: noSchemas, buildSerializer: noSchemas } },
    frameworkErrors: answeringRouterErrors(wrongRequestCode),
    clientErrorHandler: answerClientError,
  });
}

/** Counts and logs the requests of the router. The fast path calls the returned functions for its own. */
function observe(app: FastifyInstance, { name: entry, log, slowMs, metrics }: EntryOptions) {
  const accessLog = createAccessLog({ entry, log, slowMs });
  const uncaught = (error: unknown, traceId: string) => {
    metrics.uncaught();
    log.error({ entry, traceId, err: error }, 'uncaught error in a request; the request fails');
  };
  app.addHook('onResponse', (request, reply, done) => {
    try {
      const elapsedMs = reply.elapsedTime;
      metrics.observeRequest(request.method, request.route.url ?? '', reply.statusCode, elapsedMs / 1000);
      accessLog(request, reply.statusCode, elapsedMs);
    } catch (error) {
      uncaught(error, request.traceId);
    }
    done();
  });
  return { accessLog, uncaught };
}

function addOpenApi(app: FastifyInstance, { title, version }: EntryOptions): void {
  app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title, version },
      components: {
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
          xAuth: { type: 'apiKey', in: 'header', name: 'X-Auth' },
          cookie: { type: 'apiKey', in: 'cookie', name: 'iam_token' },
        },
      },
      security: [{}, { bearer: [] }, { xAuth: [] }, { cookie: [] }],
    },
    transform: ({ route, url }) => ({ schema: documentRoute(route), url }),
    transformObject: made => ('openapiObject' in made ? withOptionalBodies(made.openapiObject) : made.swaggerObject),
  });
}

/** Returns the test of tenants that see the metrics of all tenants. null: every request sees them. */
function seesAllMetrics({ auth, metricsTenants }: EntryOptions): ((tenant: string) => boolean) | null {
  if (auth === null || metricsTenants === null) return null;
  return tenant => metricsTenants?.includes(tenant) === true;
}

/** Refuses schemas of routes. Loading the router's schema compilers would take a tenth of the start time. */
function noSchemas(): never {
  throw new TypeError(
    'a route has a schema: what checks its requests is its handler, and what documents it is `config.docs`',
  );
}

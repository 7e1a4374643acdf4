import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import swagger from '@fastify/swagger';
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { internal, ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { Log } from '../lib/log.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import { type AddressHosts, giveUrlBack } from './access/address-host.ts';
import type { TokenVerifier } from './access/credentials.ts';
import { createGate, type Gate } from './access/gate.ts';
import { createHostRule, type HostRuleOptions } from './access/host-rule.ts';
import { addMasking } from './access/masking.ts';
import { isRefusal, type Verdict } from './access/verdict.ts';
import { createAccessLog } from './access-log.ts';
import { type ErrorTable, refusal, sendError } from './answer.ts';
import { documentRoute, withOptionalBodies } from './docs.ts';
import { addForwarding, Forwarding, type ForwardingOptions } from './forwarding.ts';
import { FastPath } from './hot/fast-path.ts';
import { PlainConnections } from './hot/plain-connections.ts';
import { Bodies, BodyError } from './limits/bodies.ts';
import { Connections } from './limits/connections.ts';
import { boundCostlyReads } from './limits/costly-reads.ts';
import { UnreadAnswers } from './limits/unread-answers.ts';
import { hidingOwnPaths } from './own-paths.ts';
import { checkQueries } from './query-text.ts';
import type { Route } from './route-config.ts';
import { StartupGate } from './startup-gate.ts';
import { addSystemRoutes, type SystemRouteOptions } from './system-routes.ts';
import { traceIdOf } from './trace.ts';
import { endRefusedUpgrades } from './upgrades.ts';

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
  /** Hosts of public URLs. Requests to them do not reach the service's own routes. Absent: there are none. */
  readonly addresses?: AddressHosts;
  /** The settings' defaults when absent. */
  readonly bounds?: EntryBounds;
  /** Forwards requests among several replicas. Absent or null: this replica answers all, without a lookup. */
  readonly forwarding?: ForwardingOptions | null;
  /** Enables `plain-connections.ts`. Default: true. Tests set false to compare with `node:http`. */
  readonly readsPlainRequests?: boolean;
}

/** Bounds of the memory that clients of an entry occupy. */
export interface EntryBounds {
  readonly maxConnections: number;
  /** Maximum number of connections from one remote address. */
  readonly maxConnectionsOfAddress: number;
  readonly maxBodyBytes: number;
  readonly bodyIdleMs: number;
  readonly maxAnswerBytes: number;
  readonly answerIdleMs: number;
  /** Idle time after which a connection without a new request is closed. */
  readonly keepAliveMs: number;
}

const DEFAULT_BOUNDS: EntryBounds = {
  maxConnections: 10_000,
  maxConnectionsOfAddress: 5000,
  maxBodyBytes: 256 * 1024 * 1024,
  bodyIdleMs: 30_000,
  maxAnswerBytes: 256 * 1024 * 1024,
  answerIdleMs: 60_000,
  keepAliveMs: 620_000,
};

/** URNs are longer than the router's default of 100. The HTTP parser bounds the request line in any case. */
const MAX_PARAM_CHARS = 16_384;
const UNKNOWN: FastifyRequest['route'] = {};
const NO_ROUTE = undefined as unknown as FastifyRequest['route'];
const DISK_RETRY_SECONDS = 5;

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
  const app: FastifyInstance = fastify({
    keepAliveTimeout: bounds.keepAliveMs,
    bodyLimit: LIMITS.requestBodyBytes,
    requestTimeout: LIMITS.requestArrivalMs,
    return503OnClosing: false,
    // The Host rule refuses a missing Host, with a body that names the reason.
    http: { requireHostHeader: false, headersTimeout: LIMITS.headersArrivalMs },
    routerOptions: { maxParamLength: MAX_PARAM_CHARS },
    schemaController: { compilersFactory: { buildValidator: noSchemas, buildSerializer: noSchemas } },
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      reply.header('X-Trace-Id', traceIdOf(request.raw.headers));
      reply.header('X-Content-Type-Options', 'nosniff');
      const { status, body } = refusal(error.statusCode ?? 400, `invalid request: ${error.message}`);
      reply.code(status).send(status === 400 ? { ...body, code: options.wrongRequestCode } : body);
    },
    clientErrorHandler: answerClientError,
  });

  app.decorateRequest('route', NO_ROUTE);
  app.decorateRequest('traceId', '');
  app.decorateRequest('tenant', '');
  app.decorateRequest('role', 'viewer');
  app.decorateRequest('admittedUntilMs', null);
  app.decorateRequest('failure', null);
  app.decorateRequest('warnings', null);

  app.removeAllContentTypeParsers();
  const bodies = new Bodies({ maxBytes: bounds.maxBodyBytes, idleMs: bounds.bodyIdleMs });
  app.addContentTypeParser('*', (request, _payload, done) => {
    bodies.read(request.raw, request.tenant, request.routeOptions.bodyLimit ?? LIMITS.requestBodyBytes, done);
  });

  const unread = new UnreadAnswers({
    idleMs: bounds.answerIdleMs,
    maxBytes: bounds.maxAnswerBytes,
    connections: () => connections.open(),
    queuedBytes: socket => connections.queuedBytes(socket),
  });
  const connections = new Connections(app.server, bounds.maxConnectionsOfAddress);
  app.server.maxConnections = bounds.maxConnections;
  app.server.on('connection', () => unread.start());
  const { addresses } = options;
  // Without a listener for upgrades, Node reads an upgrade request as a plain request.
  if (options.name === 'frontend') {
    endRefusedUpgrades(app, request => {
      unread.upgraded(request.socket);
      addresses?.turn(request);
    });
  }
  app.addHook('onRequest', (request, _reply, done) => {
    connections.requestBegan(request.raw.socket);
    done();
  });
  app.addHook('preClose', done => {
    connections.closeIdle();
    done();
  });

  app.decorate('adopt', (socket: Socket) => {
    connections.adopt(socket);
    unread.start();
  });

  const forwarding = options.forwarding ? new Forwarding(options.forwarding, bodies) : null;
  const hostRule = createHostRule(options.hosts);
  const { auth, wrongRequestCode } = options;
  const gate = createGate({ hostRule, auth, wrongRequestCode, hasPeers: forwarding !== null });
  app.decorate('gate', gate);
  app.addHook('onRequest', (request, reply, done) => {
    request.traceId = traceIdOf(request.raw.headers);
    reply.header('X-Trace-Id', request.traceId);
    reply.header('X-Content-Type-Options', 'nosniff');
    const route = request.routeOptions.config;
    if (auth !== null && route.access !== 'public') reply.header('Cache-Control', 'no-store');
    request.route = route;
    const pass = (verdict: Verdict) => {
      if (isRefusal(verdict)) {
        sendError(reply, verdict.reason, verdict);
        return;
      }
      request.tenant = verdict.tenant;
      request.role = verdict.role;
      request.admittedUntilMs = verdict.untilMs ?? null;
      // An unknown route is answered before its body is read, which that route need not accept.
      if (request.route.url === undefined) answerUnknownRoute(request, reply);
      else done();
    };
    const judge = (judged: Route) => {
      request.route = judged;
      const verdict = gate(request.raw, judged);
      if (verdict instanceof Promise) verdict.then(pass).catch(done);
      else pass(verdict);
    };
    if (route.gate === undefined) {
      judge(route.onlyPages === true && !asksForPage(request) ? UNKNOWN : route);
      return;
    }
    giveUrlBack(request.raw);
    route
      .gate(request)
      .then(found => {
        if (found === null) {
          judge(UNKNOWN);
          return;
        }
        if (!isRefusal(found)) request.route = found.route;
        pass(found);
      })
      .catch(done);
  });
  const hide = hidingOwnPaths(options.ownDirectories ?? []);
  app.addHook('onSend', (request, reply, payload, done) => {
    done(null, reply.statusCode >= 400 && typeof payload === 'string' ? hide(payload, request.body) : payload);
  });
  // Without authentication every request has full rights, so no request has the role of a viewer.
  if (options.auth !== null) addMasking(app);
  checkQueries(app);
  boundCostlyReads(app);
  // Forwarding comes after the bound on costly reads, which applies on the replica where a request arrives.
  if (forwarding !== null) addForwarding(app, forwarding);

  const accessLog = createAccessLog({ entry: options.name, log: options.log, slowMs: options.slowMs });
  const { metrics } = options;
  app.addHook('onResponse', (request, reply, done) => {
    try {
      const elapsedMs = reply.elapsedTime;
      const { url } = request.route;
      metrics.observeRequest(request.method, url ?? '', reply.statusCode, elapsedMs / 1000);
      accessLog(request, reply.statusCode, elapsedMs);
    } catch (error) {
      uncaught(error, request.traceId);
    }
    connections.requestEnded(request.raw.socket);
    done();
  });

  const uncaught = (error: unknown, traceId: string) => {
    metrics.uncaught();
    options.log.error({ entry: options.name, traceId, err: error }, 'uncaught error in a request; the request fails');
  };
  const fastPath = new FastPath({
    gate,
    hasAuth: auth !== null,
    bodies,
    connections,
    metrics,
    accessLog,
    uncaught,
    hide,
    forwarding,
    addresses: addresses ?? null,
  });
  app.decorate('fastPath', fastPath);
  const [route] = app.server.listeners('request') as ((request: IncomingMessage, response: ServerResponse) => void)[];
  if (route === undefined) throw new TypeError('the router does not listen to the server');
  app.server.off('request', route);
  const fault = (error: unknown, request: IncomingMessage, response: ServerResponse) => {
    uncaught(error, traceIdOf(request.headers));
    answerFault(response);
  };
  const routeLater = (request: IncomingMessage, response: ServerResponse) => {
    try {
      route(request, response);
    } catch (error) {
      fault(error, request, response);
    }
  };
  const plain = new PlainConnections(app.server, fastPath);
  // Node regards a connection with an unread request as idle. `Connections` tracks the requests correctly.
  app.server.closeIdleConnections = () => connections.closeIdle();
  app.server.on('request', (request, response) => {
    plain.began(request.socket, response);
    // An earlier answer on this connection has not been sent yet, so this answer has to wait.
    if (response.socket === null && !connections.mayWait(request.socket, response)) {
      request.socket.destroy();
      return;
    }
    try {
      addresses?.turn(request);
      if (fastPath.take(request, response)) return;
      if (response.socket !== null || hasBody(request)) route(request, response);
      else inTurn(response, () => routeLater(request, response));
    } catch (error) {
      fault(error, request, response);
    }
  });

  const readPlain = () => {
    if (options.readsPlainRequests !== false) plain.start();
  };
  if (options.started) {
    const startupGate = new StartupGate(app.server);
    void options.started.then(() => {
      startupGate.open();
      readPlain();
    });
    app.addHook('preClose', done => {
      startupGate.refuseWaiting();
      done();
    });
  } else readPlain();

  app.addHook('onRoute', route => {
    if (route.config?.access === undefined) throw new TypeError(`route ${route.method} ${route.url} names no access`);
  });

  app.setNotFoundHandler(answerUnknownRoute);

  app.setErrorHandler((error, request, reply) => answerError(error as Error, request, reply, options));

  app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: options.title, version: options.version },
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
  app.register(async scope => {
    const seesAllMetrics =
      options.auth === null || options.metricsTenants === null
        ? null
        : (tenant: string) => options.metricsTenants?.includes(tenant) === true;
    addSystemRoutes(scope, { ready: options.ready, metrics, seesAllMetrics });
  });
  return app;
}

/** Refuses schemas of routes. Loading the router's schema compilers would take a tenth of the start time. */
function noSchemas(): never {
  throw new TypeError(
    'a route has a schema: what checks its requests is its handler, and what documents it is `config.docs`',
  );
}

/** Returns true if the request accepts HTML by name. Browsers do this when they navigate. */
function asksForPage({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('text/html') === true;
}

/** Returns true if the request has a body. While a body is unread, Node does not notice a disconnect. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * Calls `serve` after the earlier requests on this connection have been answered.
 * Lists, logs and files occupy more than calls do, such as a tenant's slots and streams. When enough answers
 * wait, Node stops reading the connection and therefore does not notice its loss.
 */
function inTurn(response: ServerResponse, serve: () => void): void {
  response.once('socket', () => {
    // Runs after Node's own work to assign the socket.
    process.nextTick(() => {
      if (!response.destroyed) serve();
    });
  });
}

/** Answers a bare 500, or destroys the response if its headers were sent. */
function answerFault(response: ServerResponse): void {
  if (response.headersSent) response.destroy();
  else response.writeHead(500, ['Connection', 'close']).end();
}

/** Answers 404 for unknown paths and methods. Omits the query, which may contain a token. */
function answerUnknownRoute(request: FastifyRequest, reply: FastifyReply): void {
  const path = (request.raw.url ?? '').split('?', 1)[0];
  const { status, body } = refusal(404, `route not found: ${request.method} ${path}`);
  reply.code(status).send(body);
}

function answerError(error: Error, request: FastifyRequest, reply: FastifyReply, options: EntryOptions): void {
  if (error instanceof ServiceError) {
    sendError(reply, error, options.errors(error, request));
    return;
  }
  const status = (error as FastifyError).statusCode ?? 500;
  if (status === 413) {
    // Discards the rest of the body: an immediate close could reset the connection before the client reads.
    reply.removeHeader('connection');
    request.raw.resume();
    const limit = request.routeOptions.bodyLimit ?? LIMITS.requestBodyBytes;
    const answer = refusal(413, `request body is larger than ${limit} bytes`);
    request.failure = 'request body too large';
    reply.code(413).send(answer.body);
    return;
  }
  if (status >= 400 && status < 500) {
    request.failure = error.message;
    // The rest of the body may never arrive.
    if (error instanceof BodyError) reply.header('Connection', 'close');
    reply.code(status).send(refusal(status, `invalid request: ${error.message}`).body);
    return;
  }
  if (isDiskFull(error)) {
    const full = unavailable('the disk is full', { cause: error, retryAfterSeconds: DISK_RETRY_SECONDS });
    sendError(reply, full, options.errors(full, request));
    return;
  }
  const fault = internal(`internal error: the log has it under trace id ${request.traceId}`, { cause: error });
  sendError(reply, fault, options.errors(fault, request));
}

/** Answers bytes that never become a request: not HTTP, too large, or too slow. */
function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, reason, message] = CLIENT_ERRORS[error.code ?? ''] ?? NOT_HTTP;
  const body = JSON.stringify({ code: status, message });
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

type ClientError = readonly [status: number, reason: string, message: string];
const NOT_HTTP: ClientError = [400, 'Bad Request', 'the request is not valid HTTP'];
const CLIENT_ERRORS: Readonly<Record<string, ClientError>> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout', 'the request took too long to arrive'],
  HPE_HEADER_OVERFLOW: [431, 'Request Header Fields Too Large', 'the request line and headers are too large'],
};

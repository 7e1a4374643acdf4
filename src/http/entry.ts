import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import swagger from '@fastify/swagger';
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { internal, ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import { createAccessLog, type EntryLog } from './access-log.ts';
import { type AddressHosts, giveUrlBack } from './address-host.ts';
import { type ErrorTable, refusal, sendError } from './answer.ts';
import { Bodies, BodyError } from './bodies.ts';
import { Connections } from './connections.ts';
import { boundCostlyReads } from './costly-reads.ts';
import type { TokenVerifier } from './credentials.ts';
import { documentRoute, withOptionalBodies } from './docs.ts';
import { Doorway } from './doorway.ts';
import { FastPath } from './fast-path.ts';
import { addForwarding, Forwarding, type ForwardingOptions } from './forwarding.ts';
import { createGate, type Gate } from './gate.ts';
import { createHostRule, type HostRuleOptions } from './host-rule.ts';
import { addMasking } from './masking.ts';
import { hidingOwnPaths } from './own-paths.ts';
import { PlainConnections } from './plain-connections.ts';
import type { Route } from './route-config.ts';
import { addSystemRoutes, type SystemRouteOptions } from './system-routes.ts';
import { traceIdOf } from './trace.ts';
import { UnreadAnswers } from './unread-answers.ts';
import { endRefusedUpgrades } from './upgrades.ts';
import { isRefusal, type Verdict } from './verdict.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** The short way to hot routes; `addHotRoute` puts one on it. */
    fastPath: FastPath;
    /** The checks of every request before its route. */
    gate: Gate;
    /** Takes a connection of another replica, whose requests are given to `server`: it ends with the entry, and its answers have the same bounds. */
    adopt: (socket: Socket) => void;
  }
}

export interface EntryOptions {
  readonly name: 'frontend' | 'meta_service';
  readonly title: string;
  readonly version: string;
  readonly hosts: HostRuleOptions;
  /** null: authentication is off. */
  readonly auth: TokenVerifier | null;
  readonly ready: SystemRouteOptions['ready'];
  /** Resolves when everything behind the entry has started; until then only health is answered. Absent: it has. */
  readonly started?: Promise<void>;
  readonly metrics: EntryMetrics;
  readonly log: EntryLog;
  readonly slowMs: number;
  /** The answer to a `ServiceError` that a route throws. */
  readonly errors: ErrorTable;
  /** The body's `code` (status 400) for a tenant header that is not a tenant, and for a path that cannot be decoded. */
  readonly wrongRequestCode: number;
  /** Directories of the service itself, whose paths no answer shows. */
  readonly ownDirectories?: readonly string[];
  /** With authentication on: whose tokens see the metrics of all tenants; any other sees its own. */
  readonly metricsTenants?: readonly string[] | null;
  /** Hosts of addresses, whose requests are not for the service's own routes. Absent: there are none. */
  readonly addresses?: AddressHosts;
  /** Those of the settings' defaults when absent. */
  readonly bounds?: EntryBounds;
  /** With several replicas: where things live, and who passes requests on. Absent or null: everything is answered here, at no cost. */
  readonly forwarding?: ForwardingOptions | null;
  /** False: `node:http` reads every request, for tests that compare. */
  readonly readsPlainRequests?: boolean;
}

/** Bounds of the memory that callers of one entry take. */
export interface EntryBounds {
  readonly maxConnections: number;
  /** Of one remote address. */
  readonly maxConnectionsOfAddress: number;
  readonly maxBodyBytes: number;
  readonly bodyIdleMs: number;
  readonly maxAnswerBytes: number;
  readonly answerIdleMs: number;
}

const DEFAULT_BOUNDS: EntryBounds = {
  maxConnections: 10_000,
  maxConnectionsOfAddress: 5000,
  maxBodyBytes: 256 * 1024 * 1024,
  bodyIdleMs: 30_000,
  maxAnswerBytes: 256 * 1024 * 1024,
  answerIdleMs: 60_000,
};

/** URNs are longer than the router's default of 100; a request line is bounded by the HTTP parser anyway. */
const MAX_PARAM_CHARS = 16_384;
const UNKNOWN: FastifyRequest['route'] = {};
const NO_ROUTE = undefined as unknown as FastifyRequest['route'];
const DISK_RETRY_SECONDS = 5;

/**
 * The shape that both HTTP entries share. It never listens.
 *
 * Routes are added inside `app.register(async scope => …)`, each with `config: { access, docs }`. A request's body is a `Buffer`
 * whatever its content type (undefined when there is none); `request.tenant` and `request.traceId` are set; a `ServiceError`
 * that a handler throws is answered by `errors`, anything else is a 500 whose cause is in the log.
 */
export function createEntry(options: EntryOptions): FastifyInstance {
  const app: FastifyInstance = fastify({
    bodyLimit: LIMITS.requestBodyBytes,
    requestTimeout: LIMITS.requestArrivalMs,
    return503OnClosing: false,
    // A missing Host is refused by the Host rule, with a body that says so.
    http: { requireHostHeader: false, headersTimeout: LIMITS.headersArrivalMs },
    routerOptions: { maxParamLength: MAX_PARAM_CHARS },
    schemaController: { compilersFactory: { buildValidator: noSchemas, buildSerializer: noSchemas } },
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      reply.header('X-Trace-Id', traceIdOf(request.raw.headers));
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
  const bounds = options.bounds ?? DEFAULT_BOUNDS;
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
  // Where nobody listens for upgrades, Node reads a request that asks for one as a plain one.
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
    const route = request.routeOptions.config;
    request.route = route;
    const pass = (verdict: Verdict) => {
      if (isRefusal(verdict)) {
        sendError(reply, verdict.reason, verdict);
        return;
      }
      request.tenant = verdict.tenant;
      request.role = verdict.role;
      request.admittedUntilMs = verdict.untilMs ?? null;
      // Before the body, which an unknown route would otherwise have to be able to read.
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
  // With authentication off nobody is a viewer.
  if (options.auth !== null) addMasking(app);
  boundCostlyReads(app);
  // Behind that bound, which holds where a request arrives.
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
    options.log.error({ entry: options.name, traceId, err: error }, 'a fault on the way of one request, which fails');
  };
  const fastPath = new FastPath({
    gate,
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
  // Node takes a connection for idle whose request it has not read; `Connections` knows better.
  app.server.closeIdleConnections = () => connections.closeIdle();
  app.server.on('request', (request, response) => {
    plain.began(request.socket, response);
    // Its answer has to wait for another one.
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
    const doorway = new Doorway(app.server);
    void options.started.then(() => {
      doorway.open();
      readPlain();
    });
    app.addHook('preClose', done => {
      doorway.refuseWaiting();
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

/** Handlers check what comes and write what goes themselves; the router's compilers of schemas would only be loaded, which takes a tenth of a start. */
function noSchemas(): never {
  throw new TypeError(
    'a route has a schema: what checks its requests is its handler, and what documents it is `config.docs`',
  );
}

/** A browser that goes somewhere says so by name; other callers take anything. */
function asksForPage({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('text/html') === true;
}

/** A body that nobody reads stops the reading of its connection: what runs on it would not hear that its caller left. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * Calls `serve` when the requests before this one are answered. Lists, logs and files hold more than calls do (slots of all their tenant,
 * streams), and node, once enough answers wait, stops reading a connection and so never hears that it was lost.
 */
function inTurn(response: ServerResponse, serve: () => void): void {
  response.once('socket', () => {
    // Behind what node does to hand the connection over.
    process.nextTick(() => {
      if (!response.destroyed) serve();
    });
  });
}

/** Where nothing is left but the bare answer. */
function answerFault(response: ServerResponse): void {
  if (response.headersSent) response.destroy();
  else response.writeHead(500, ['Connection', 'close']).end();
}

/** Unknown methods too: 404 and the path without its query, which may carry a token. */
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
    // The rest of the body is read and dropped: closing at once would reset the connection before the caller has read why.
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
    // The rest of the body may never come.
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

/** Bytes that are not HTTP, too many, or too slow never become a request. */
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

import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Away, internal, invalidRequest, permissionDenied, ServiceError } from '../../core/error.ts';
import { DEFAULT_TENANT, isTenant, TENANT_RULE } from '../../core/tenant.ts';
import { answerUnknownRoute, REFUSAL_STATUS, refusal, sendError } from '../answer.ts';
import { admitForwarded, forwardedOf } from '../forwarding.ts';
import { type RequestHead, traceIdOf } from '../request.ts';
import type { OwnGate, Route } from '../route-config.ts';
import {
  type Admitted,
  checkAccess,
  hasTokenHeader,
  type Identity,
  isRefusal,
  isWebSocketUpgrade,
  type Refusal,
  type TokenVerifier,
  tokenOf,
  type Verdict,
} from './credentials.ts';
import { type HostRule, lacksForwardedProto } from './host-rule.ts';
import { restoreUrl } from './host-turns.ts';

export interface GateOptions {
  readonly hostRule: HostRule;
  /** Verifies tokens. null: authentication is off, and every client is trusted. */
  readonly auth: TokenVerifier | null;
  /** The body's `code` for a wrong tenant header. */
  readonly wrongRequestCode: number;
  /**
   * True if other replicas forward requests to this one. The first replica has already checked such requests.
   */
  readonly hasPeers: boolean;
}

/**
 * Decides about a request before its route runs.
 * The verdict is a promise only for a token that was not verified before. A warm call pays for no promise.
 */
export type Gate = (request: RequestHead, route: Route) => Verdict | Promise<Verdict>;

/** The identity when authentication is off, and on public routes. */
const TRUSTED: Admitted = { tenant: DEFAULT_TENANT, role: 'developer' };
/** Values of `Sec-Fetch-Dest` with which a page executes the answer. */
const SCRIPTS = new Set(['script', 'worker', 'sharedworker', 'serviceworker', 'audioworklet', 'paintworklet', 'xslt']);
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);
/** Matches `type/subtype`, with or without parameters. */
const MEDIA_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(;|$)/;

/**
 * Creates the gate, which checks Host (421), Origin (403), token (401, 403) and tenant (400, 403) in this
 * order.
 */
export function createGate({ hostRule, auth, wrongRequestCode, hasPeers }: GateOptions): Gate {
  const refused = (error: unknown): Refusal => {
    const reason =
      error instanceof ServiceError ? error : internal('the request could not be checked', { cause: error });
    const status = reason instanceof Away ? 503 : (REFUSAL_STATUS[reason.code] ?? 500);
    const { body } = refusal(status, reason.message);
    return { reason, status, body: status === 400 ? { ...body, code: wrongRequestCode } : body };
  };

  const admit = (request: RequestHead, route: Route, identity: Identity | undefined): Verdict => {
    try {
      if (identity !== undefined) checkAccess(identity, route.access ?? 'read');
      const tenant = tenantOf(request.headers, identity?.tenant);
      if (identity !== undefined && hasTenant(identity)) return identity;
      return tenant === DEFAULT_TENANT ? TRUSTED : { tenant, role: TRUSTED.role };
    } catch (error) {
      return refused(error);
    }
  };

  // A page of another origin cannot set a token header, and a browser adds none on its own.
  const namesItsRight = ({ headers }: RequestHead) => auth !== null && hasTokenHeader(headers);

  const check: Gate = (request, route) => {
    const { headers } = request;
    if (route.anyHost !== true && !hostRule.allowsHost(headers.host, request.socket?.localAddress)) {
      const text = `host not allowed: ${headers.host ?? '(none)'}; see the setting allowedHosts`;
      return { reason: 'host not allowed', ...refusal(421, text) };
    }
    const changes = !SAFE_METHODS.has(request.method as string) || isWebSocketUpgrade(request);
    if (changes && route.anyOrigin !== true && hostRule.isCrossSite(headers)) return crossSite(headers);
    if (route.leadsInside === true) {
      if (loadsScript(headers)) return foreignScript;
      const isAnyPages = route.anyOrigin === true || namesItsRight(request);
      if (!changes && !isAnyPages && hostRule.isFromElsewhere(request)) return crossSite(headers);
    }
    dropOddType(headers);

    // A public route ignores the tenant, so that a probe does not fail because of a proxy's tenant header.
    if (route.access === 'public') return TRUSTED;
    if (auth === null) return admit(request, route, undefined);
    const token = tokenOf(request);
    if (token === undefined) {
      return refused(new ServiceError('unauthenticated', 'authentication failed: no token was sent'));
    }
    const known = auth.known(token);
    if (known !== undefined) return admit(request, route, known);
    return auth.verify(token).then(identity => admit(request, route, identity), refused);
  };
  if (!hasPeers) return check;
  return (request, route) => {
    const by = forwardedOf(request);
    if (by === undefined) return check(request, route);
    dropOddType(request.headers);
    try {
      return admitForwarded(by, route);
    } catch (error) {
      return refused(error);
    }
  };
}

const foreignScript: Refusal = {
  reason: 'script of a sandbox for a page of the service',
  ...refusal(403, 'pages of the service load scripts from /assets/ only'),
};

/**
 * Returns true if a page of the service's own origin, the dashboard, would execute the answer.
 * Pages from sandboxes have no origin.
 */
function loadsScript(headers: IncomingHttpHeaders): boolean {
  const { 'sec-fetch-site': site, 'sec-fetch-dest': dest } = headers;
  return site === 'same-origin' && typeof dest === 'string' && SCRIPTS.has(dest);
}

/** Builds the refusal of a request from a page of another origin. */
export function crossSite(headers: IncomingHttpHeaders): Refusal {
  const hint = lacksForwardedProto(headers)
    ? `: the page is of ${headers.origin}; a proxy that speaks TLS in front of this service must send X-Forwarded-Proto: https`
    : '';
  return { reason: 'cross-site request', ...refusal(403, `cross-site requests are not allowed${hint}`) };
}

/**
 * Removes a `Content-Type` that is no media type, which the router would answer with 415.
 * The entry reads bodies of every type.
 */
function dropOddType(headers: IncomingHttpHeaders): void {
  const contentType = headers['content-type'];
  if (contentType !== undefined && !isMediaType(contentType)) delete headers['content-type'];
}

/**
 * Returns true if the token names a tenant. Without one, the request names its tenant, and every tenant is
 * allowed.
 */
function hasTenant(identity: Identity): identity is Admitted {
  return identity.tenant !== undefined;
}

function isMediaType(text: string): boolean {
  return text === 'application/json' || MEDIA_TYPE.test(text);
}

/**
 * Returns the tenant of a request: the token's, else the header `tenantId` or `X-Tenant-Id`, else `default`.
 * Fails with `invalid_request` for a malformed name or two different headers. Fails with `permission_denied`
 * if the header differs from the token's tenant.
 */
export function tenantOf(headers: IncomingHttpHeaders, ofToken: string | undefined): string {
  const named = headerOf(headers, 'tenantid') ?? headerOf(headers, 'x-tenant-id');
  if (named === undefined) return ofToken ?? DEFAULT_TENANT;
  if (!isTenant(named)) {
    throw invalidRequest(`invalid tenant "${named}": expected ${TENANT_RULE}`);
  }
  const other = headerOf(headers, 'x-tenant-id');
  if (other !== undefined && other !== named) {
    throw invalidRequest(`the headers tenantId ("${named}") and X-Tenant-Id ("${other}") differ`);
  }
  if (ofToken !== undefined && named !== ofToken) {
    throw permissionDenied(`the token is of another tenant than "${named}"`);
  }
  return named;
}

function headerOf(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

type Done = (error?: Error) => void;

const UNKNOWN: Route = {};
const NO_ROUTE = undefined as unknown as Route;

/** Adds the fields that `FastifyRequest` has here, and the headers that every answer has. */
export function addRequestFields(app: FastifyInstance, hasAuth: boolean): void {
  app.decorateRequest('route', NO_ROUTE);
  app.decorateRequest('traceId', '');
  app.decorateRequest('tenant', '');
  app.decorateRequest('role', 'viewer');
  app.decorateRequest('tokenName', '');
  app.decorateRequest('admittedUntilMs', null);
  app.decorateRequest('failure', null);
  app.decorateRequest('warnings', null);
  app.addHook('onRequest', (request, reply, done) => {
    request.traceId = traceIdOf(request.raw.headers);
    request.route = request.routeOptions.config;
    reply.header('X-Trace-Id', request.traceId);
    reply.header('X-Content-Type-Options', 'nosniff');
    if (hasAuth && request.route.access !== 'public') reply.header('Cache-Control', 'no-store');
    done();
  });
}

/** Adds the hook that runs `gate`, or the gate of the route, before a route runs. */
export function addGateHook(app: FastifyInstance, gate: Gate): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { route } = request;
    if (route.gate !== undefined) judgeByRoute(route.gate, gate, request, reply, done);
    else judge(route.onlyPages === true && !asksForPage(request) ? UNKNOWN : route, gate, request, reply, done);
  });
}

function judgeByRoute(routeGate: OwnGate, gate: Gate, request: FastifyRequest, reply: FastifyReply, done: Done): void {
  restoreUrl(request.raw);
  routeGate(request)
    .then(found => {
      if (found === null) {
        judge(UNKNOWN, gate, request, reply, done);
        return;
      }
      if (!isRefusal(found)) request.route = found.route;
      pass(found, request, reply, done);
    })
    .catch(done);
}

function judge(route: Route, gate: Gate, request: FastifyRequest, reply: FastifyReply, done: Done): void {
  request.route = route;
  const verdict = gate(request.raw, route);
  if (verdict instanceof Promise) verdict.then(later => pass(later, request, reply, done)).catch(done);
  else pass(verdict, request, reply, done);
}

function pass(verdict: Verdict, request: FastifyRequest, reply: FastifyReply, done: Done): void {
  if (isRefusal(verdict)) {
    sendError(reply, verdict.reason, verdict);
    return;
  }
  request.tenant = verdict.tenant;
  request.role = verdict.role;
  request.tokenName = verdict.name ?? '';
  request.admittedUntilMs = verdict.untilMs ?? null;
  // An unknown route is answered before its body is read, which that route need not accept.
  if (request.route.url === undefined) answerUnknownRoute(request, reply);
  else done();
}

/** Returns true if the request accepts HTML by name. Browsers do this when they navigate. */
function asksForPage({ headers }: FastifyRequest): boolean {
  return headers.accept?.includes('text/html') === true;
}

import type { IncomingHttpHeaders } from 'node:http';
import { Away, internal, ServiceError } from '../../core/error.ts';
import { DEFAULT_TENANT } from '../../core/tenant.ts';
import { REFUSAL_STATUS, refusal } from '../answer.ts';
import { admitForwarded, forwardedOf } from '../forwarding.ts';
import type { RequestHead } from '../request.ts';
import type { Route } from '../route-config.ts';
import {
  checkAccess,
  hasTokenHeader,
  type Identity,
  isWebSocketUpgrade,
  type TokenVerifier,
  tokenOf,
} from './credentials.ts';
import { type HostRule, lacksForwardedProto } from './host-rule.ts';
import { tenantOf } from './tenant.ts';
import type { Admitted, Refusal, Verdict } from './verdict.ts';

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

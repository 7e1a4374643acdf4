import type { IncomingHttpHeaders } from 'node:http';
import { internal, ServiceError } from '../core/error.ts';
import { DEFAULT_TENANT } from '../core/tenant.ts';
import { REFUSAL_STATUS, refusal } from './answer.ts';
import { checkAccess, type Identity, isWebSocketUpgrade, type TokenVerifier, tokenOf } from './credentials.ts';
import { admitForwarded, forwardedOf } from './forwarding.ts';
import type { HostRule } from './host-rule.ts';
import type { RequestHead } from './plain-request.ts';
import type { Route } from './route-config.ts';
import { tenantOf } from './tenant.ts';
import type { Admitted, Refusal, Verdict } from './verdict.ts';

export interface GateOptions {
  readonly hostRule: HostRule;
  /** null: authentication is off, every caller is trusted. */
  readonly auth: TokenVerifier | null;
  /** The body's `code` for a tenant header that is not a tenant. */
  readonly wrongRequestCode: number;
  /** Other replicas forward requests to here: those were checked by the replica that took them. */
  readonly hasPeers: boolean;
}

/** A verdict that is there at once is no promise, so that a warm call pays for none; only a token that was never seen waits. */
export type Gate = (request: RequestHead, route: Route) => Verdict | Promise<Verdict>;

/** With authentication off, and where nobody is asked who they are. */
const TRUSTED: Admitted = { tenant: DEFAULT_TENANT, role: 'developer' };
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);
/** `type/subtype`, with or without parameters. */
const MEDIA_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(;|$)/;

/** The checks of every request before its route: Host (421), Origin (403), token (401, 403), tenant (400, 403). */
export function createGate({ hostRule, auth, wrongRequestCode, hasPeers }: GateOptions): Gate {
  const refused = (error: unknown): Refusal => {
    const reason =
      error instanceof ServiceError ? error : internal('the request could not be checked', { cause: error });
    const status = REFUSAL_STATUS[reason.code] ?? 500;
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

  const check: Gate = (request, route) => {
    const { headers } = request;
    if (route.anyHost !== true && !hostRule.allowsHost(headers.host, request.socket?.localAddress)) {
      const text = `host not allowed: ${headers.host ?? '(none)'}; see the setting allowedHosts`;
      return { reason: 'host not allowed', ...refusal(421, text) };
    }
    const changes = !SAFE_METHODS.has(request.method as string) || isWebSocketUpgrade(request);
    if (changes && route.anyOrigin !== true && hostRule.isCrossSite(headers)) {
      return { reason: 'cross-site request', ...refusal(403, 'cross-site requests are not allowed') };
    }
    dropOddType(headers);

    // It speaks for nobody: a probe must not fail for what a proxy says of tenants.
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

/** A body is read whatever its type is called; a header that is no media type at all would be a 415. */
function dropOddType(headers: IncomingHttpHeaders): void {
  const contentType = headers['content-type'];
  if (contentType !== undefined && !isMediaType(contentType)) delete headers['content-type'];
}

/** Not so for a token that says nothing of tenants: then the request does, and everything is allowed. */
function hasTenant(identity: Identity): identity is Admitted {
  return identity.tenant !== undefined;
}

function isMediaType(text: string): boolean {
  return text === 'application/json' || MEDIA_TYPE.test(text);
}

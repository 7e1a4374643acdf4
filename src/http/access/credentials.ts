import { timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { permissionDenied, type ServiceError, unauthenticated } from '../../core/error.ts';
import { queryOf, valuesOf } from '../../lib/query-pairs.ts';
import type { ErrorAnswer } from '../answer.ts';
import type { RequestHead } from '../request.ts';

/** The right that a route needs. Each role has a set of them. `public` routes need no token. */
export type Access = 'public' | 'read' | 'invoke' | 'write';
export type Role = 'viewer' | 'user' | 'developer';

/** The tenant and role of a valid token. */
export interface Identity {
  /** The tenant of the token. undefined: the request names the tenant, and every tenant is allowed. */
  readonly tenant: string | undefined;
  readonly role: Role;
  /** The name of the token, for the history of calls. Absent: it has none. */
  readonly name?: string;
  /** Time at which the token expires, in milliseconds since 1970. undefined: it does not expire. */
  readonly untilMs?: number | undefined;
}

/** Verifies tokens: `createJwtVerifier`, `createLocalTokenVerifier`. */
export interface TokenVerifier {
  /** Returns the identity of a token that was verified before and is still valid. */
  known(token: string): Identity | undefined;
  /**
   * Fails with `unauthenticated` (`authentication failed: <reason>`) or `permission_denied` (unknown role).
   */
  verify(token: string): Promise<Identity>;
}

const BEARER = /^Bearer +(\S+) *$/i;
const MAY: Readonly<Record<Role, readonly Access[]>> = {
  viewer: ['public', 'read'],
  user: ['public', 'read', 'invoke'],
  developer: ['public', 'read', 'invoke', 'write'],
};

/** Fails with `permission_denied` if the role does not include the access. */
export function checkAccess(identity: Identity, needed: Access): void {
  if (!MAY[identity.role].includes(needed)) {
    throw permissionDenied(`role ${identity.role} may not do this: it needs ${needed} access`);
  }
}

/**
 * Returns the token of a request.
 * The sources, in order: `X-Auth`, `Authorization: Bearer`, the cookie `iam_token`, and for WebSocket
 * upgrades the query parameter `token`. The first one that is present counts.
 */
export function tokenOf(request: RequestHead): string | undefined {
  const { headers } = request;
  const xAuth = headers['x-auth'];
  if (typeof xAuth === 'string' && xAuth !== '') return xAuth;
  const bearer = BEARER.exec(headers.authorization ?? '');
  if (bearer) return bearer[1];
  const cookie = headers.cookie === undefined ? null : /(?:^|; *)iam_token=([^;]*)/.exec(headers.cookie);
  if (cookie?.[1]) return cookie[1].trim();
  if (!isWebSocketUpgrade(request)) return undefined;
  return valuesOf(queryOf(request.url ?? '') ?? '', 'token')[0];
}

/** Returns true if a header carries the token. Browsers never add these headers on their own. */
export function hasTokenHeader(headers: IncomingHttpHeaders): boolean {
  return Boolean(headers['x-auth']) || BEARER.test(headers.authorization ?? '');
}

export function isWebSocketUpgrade(request: Pick<RequestHead, 'headers'>): boolean {
  return request.headers.upgrade?.toLowerCase() === 'websocket';
}

/** A refused request: the answer and the reason. */
export interface Refusal extends ErrorAnswer {
  /** The reason for the access log. */
  readonly reason: ServiceError | string;
}

/** The tenant, role and expiry of an admitted request. */
export type Admitted = Identity & { readonly tenant: string };

/** The result of the gate. */
export type Verdict = Admitted | Refusal;

export function isRefusal(verdict: Verdict): verdict is Refusal {
  return (verdict as Refusal).status !== undefined;
}

/** The identity of the token: every tenant and every right, as without authentication. */
const OWNER: Identity = { tenant: undefined, role: 'developer' };

/**
 * Accepts only the token of `serve --local-token`, which is stored in the data directory.
 * Every other token fails with `unauthenticated`.
 */
export function createLocalTokenVerifier(token: string): TokenVerifier {
  const expected = Buffer.from(token);
  return {
    known(given) {
      const bytes = Buffer.from(given);
      return bytes.length === expected.length && timingSafeEqual(bytes, expected) ? OWNER : undefined;
    },
    verify() {
      const where = 'the file local-token of the data directory';
      return Promise.reject(
        unauthenticated(`authentication failed: the token is not that of this service, in ${where}`),
      );
    },
  };
}

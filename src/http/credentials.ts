import { permissionDenied } from '../core/error.ts';
import { queryOf, valuesOf } from '../lib/query-pairs.ts';
import type { RequestHead } from './plain-request.ts';

/** The rights of a role; each route names the access that it needs. `public` routes need no token. */
export type Access = 'public' | 'read' | 'invoke' | 'write';
export type Role = 'viewer' | 'user' | 'developer';

/** Who a valid token speaks for. */
export interface Identity {
  /** undefined: every tenant, as the request says. */
  readonly tenant: string | undefined;
  readonly role: Role;
  /** When the token holds no longer, in milliseconds since 1970; undefined: it has no end. */
  readonly untilMs?: number | undefined;
}

/** Checks tokens. `jwt.ts` has the one that the product uses. */
export interface TokenVerifier {
  /** The identity of a token that was verified before and still holds. */
  known(token: string): Identity | undefined;
  /** Fails with `unauthenticated` (`authentication failed: <reason>`) or `permission_denied` (unknown role). */
  verify(token: string): Promise<Identity>;
}

const MAY: Readonly<Record<Role, readonly Access[]>> = {
  viewer: ['public', 'read'],
  user: ['public', 'read', 'invoke'],
  developer: ['public', 'read', 'invoke', 'write'],
};

/** Fails with `permission_denied` when the role is not enough. */
export function checkAccess(identity: Identity, needed: Access): void {
  if (!MAY[identity.role].includes(needed)) {
    throw permissionDenied(`role ${identity.role} may not do this: it needs ${needed} access`);
  }
}

/**
 * The token of a request: `X-Auth`, else `Authorization: Bearer`, else the cookie `iam_token`, else (WebSocket upgrades
 * only) the query parameter `token`. The first one that is there counts.
 */
export function tokenOf(request: RequestHead): string | undefined {
  const { headers } = request;
  const xAuth = headers['x-auth'];
  if (typeof xAuth === 'string' && xAuth !== '') return xAuth;
  const bearer = /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '');
  if (bearer) return bearer[1];
  const cookie = headers.cookie === undefined ? null : /(?:^|; *)iam_token=([^;]*)/.exec(headers.cookie);
  if (cookie?.[1]) return cookie[1].trim();
  if (!isWebSocketUpgrade(request)) return undefined;
  return valuesOf(queryOf(request.url ?? '') ?? '', 'token')[0];
}

export function isWebSocketUpgrade(request: Pick<RequestHead, 'headers'>): boolean {
  return request.headers.upgrade?.toLowerCase() === 'websocket';
}

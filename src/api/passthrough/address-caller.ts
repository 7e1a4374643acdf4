import type { IncomingMessage } from 'node:http';
import { unauthenticated } from '../../core/error.ts';
import type { Identity, TokenVerifier } from '../../http/access/credentials.ts';
import { carriedTokens, isOurs } from './headers.ts';

/** Returns true if a request asks for another protocol. Such a request may change state with any method. */
export function asksForUpgrade({ headers }: IncomingMessage): boolean {
  return headers.upgrade !== undefined;
}

/**
 * Returns the platform's tokens in a request, without those in cookies.
 * At a public URL with a host name, the cookies belong to the exposed server. Fails as `carriedTokens` does.
 */
export async function ownTokens(request: IncomingMessage, auth: TokenVerifier | null): Promise<readonly string[]> {
  if (auth === null) return [];
  const carried = carriedTokens(request);
  const ours = await Promise.all(carried.map(token => isOurs(token, auth)));
  return carried.filter((_, at) => ours[at]);
}

/**
 * Returns the identity of the token in a request's headers, or in the query of an upgrade.
 * Fails with `unauthenticated`, and as `carriedTokens` does.
 */
export async function identityOf(request: IncomingMessage, auth: TokenVerifier): Promise<Identity> {
  const [token] = carriedTokens(request);
  if (token === undefined) throw unauthenticated('authentication failed: no token was sent');
  return auth.known(token) ?? (await auth.verify(token));
}

/** Returns the scheme that the client uses. Only a proxy, and no page, can report `https`. */
export function schemeOf({ headers }: IncomingMessage): 'http' | 'https' {
  return headers['x-forwarded-proto'] === 'https' ? 'https' : 'http';
}

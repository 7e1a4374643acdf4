import type { IncomingMessage } from 'node:http';
import { unauthenticated } from '../../core/error.ts';
import type { Identity, TokenVerifier } from '../../http/credentials.ts';
import { carriedTokens, isOurs } from './headers.ts';

/** Whether a request asks for another protocol: then it may change things, whatever its method. */
export function asksForUpgrade({ headers }: IncomingMessage): boolean {
  return headers.upgrade !== undefined;
}

/**
 * Whether a browser says that a page of another origin sends it. That counts where the right to come is one that browsers send along unasked. A
 * link on another page may lead here, and nothing else of another page may.
 */
export function isFromElsewhere(request: IncomingMessage): boolean {
  const { headers } = request;
  const { origin } = headers;
  if (origin !== undefined && origin.toLowerCase() !== ownOrigin(request)) return true;
  const site = headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return false;
  return asksForUpgrade(request) || !isNavigation(request);
}

/** The platform's tokens among what a request carries. Cookies do not count: at an address they are those of what is exposed. Fails as `carriedTokens` does. */
export async function ownTokens(request: IncomingMessage, auth: TokenVerifier | null): Promise<readonly string[]> {
  if (auth === null) return [];
  const carried = carriedTokens(request);
  const ours = await Promise.all(carried.map(token => isOurs(token, auth)));
  return carried.filter((_, at) => ours[at]);
}

/** Whom a request speaks for by the token that it carries in a header, or an upgrade in its query. Fails with `unauthenticated`, and as `carriedTokens` does. */
export async function identityOf(request: IncomingMessage, auth: TokenVerifier): Promise<Identity> {
  const [token] = carriedTokens(request);
  if (token === undefined) throw unauthenticated('authentication failed: no token was sent');
  return auth.known(token) ?? (await auth.verify(token));
}

/** Only a proxy, and no page, can say that it was `https` there. */
export function schemeOf({ headers }: IncomingMessage): 'http' | 'https' {
  return headers['x-forwarded-proto'] === 'https' ? 'https' : 'http';
}

function isNavigation({ method, headers }: IncomingMessage): boolean {
  const isSafe = method === 'GET' || method === 'HEAD';
  return isSafe && headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
}

function ownOrigin(request: IncomingMessage): string {
  const scheme = schemeOf(request);
  const host = (request.headers.host ?? '').toLowerCase();
  return `${scheme}://${host.replace(scheme === 'https' ? /:443$/ : /:80$/, '')}`;
}

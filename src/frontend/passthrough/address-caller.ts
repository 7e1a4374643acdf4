import type { IncomingMessage } from 'node:http';
import { unauthenticated } from '../../core/error.ts';
import { type Identity, isWebSocketUpgrade, type TokenVerifier } from '../../http/credentials.ts';

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

/** The platform's tokens among what a request carries. Cookies do not count: at an address they are those of what is exposed. */
export async function ownTokens(request: IncomingMessage, auth: TokenVerifier | null): Promise<readonly string[]> {
  if (auth === null) return [];
  const found: string[] = [];
  for (const token of new Set(carried(request))) {
    const isOurs = auth.known(token) !== undefined || (await auth.verify(token).then(yes, no));
    if (isOurs) found.push(token);
  }
  return found;
}

/** Whom a request speaks for by the token that it carries in a header, or an upgrade in its query. Fails with `unauthenticated`. */
export async function identityOf(request: IncomingMessage, auth: TokenVerifier): Promise<Identity> {
  const [token] = carried(request);
  if (token === undefined) throw unauthenticated('authentication failed: no token was sent');
  return auth.known(token) ?? (await auth.verify(token));
}

/** Only a proxy, and no page, can say that it was `https` there. */
export function schemeOf({ headers }: IncomingMessage): 'http' | 'https' {
  return headers['x-forwarded-proto'] === 'https' ? 'https' : 'http';
}

function carried(request: IncomingMessage): string[] {
  const found: string[] = [];
  const xAuth = request.headers['x-auth'];
  if (typeof xAuth === 'string' && xAuth !== '') found.push(xAuth);
  for (let at = 0; at < request.rawHeaders.length; at += 2) {
    if (request.rawHeaders[at]?.toLowerCase() !== 'authorization') continue;
    const bearer = /^\s*bearer\s+(\S+)/i.exec(request.rawHeaders[at + 1] as string)?.[1];
    if (bearer !== undefined) found.push(bearer);
  }
  const query = isWebSocketUpgrade(request) ? request.url?.split('?', 2)[1] : undefined;
  const inQuery = query === undefined ? null : new URLSearchParams(query).get('token');
  if (inQuery) found.push(inQuery);
  return found;
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

const yes = () => true;
const no = () => false;

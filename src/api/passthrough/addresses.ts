import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { addressPath, parseAddressPath } from '../../core/address.ts';
import { Away, notFound, permissionDenied, ServiceError, unauthenticated } from '../../core/error.ts';
import { addressedByHost, BY_HOST_URL } from '../../http/access/address-host.ts';
import {
  type Admitted,
  checkAccess,
  type Identity,
  isRefusal,
  type Refusal,
  type TokenVerifier,
  tokenOf,
} from '../../http/access/credentials.ts';
import { crossSite } from '../../http/access/gate.ts';
import { createHostRule } from '../../http/access/host-rule.ts';
import { REFUSAL_STATUS, refusal } from '../../http/answer.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import type { OwnGate, Route } from '../../http/route-config.ts';
import { queryOf, valuesOf } from '../../lib/query-pairs.ts';
import type { AddressTarget, AddressTargets } from './address-targets.ts';
import { carriedTokens, isOurs, pairsForSandbox, platformTokens, tellOrigin } from './headers.ts';
import { BY_HOST, byPath, type HeaderChanges, LINK_COOKIE, LINK_PARAMETER, type LinkSigner } from './links.ts';
import { disableBodyParsing, type Passage } from './passage.ts';

export interface AddressOptions {
  readonly targets: AddressTargets;
  readonly links: LinkSigner;
  readonly auth: TokenVerifier | null;
}

/** The result for an admitted request. */
type Found =
  | {
      readonly kind: 'pass';
      readonly target: AddressTarget;
      readonly headerChanges: HeaderChanges;
      readonly path: string;
    }
  /** Redirects to the URL without its signed link, or to the path with its final slash. */
  | { readonly kind: 'redirect'; readonly status: 303 | 308; readonly headers: Readonly<Record<string, string>> };

/** The right to use a public URL until a time, in milliseconds since 1970. undefined: it does not expire. */
interface Right {
  readonly untilMs: number | undefined;
}

/**
 * The origin rule of public URLs with a host name. `allowedHosts` names pages of the service, so none applies
 * here.
 */
const OWN_ORIGIN = createHostRule({ boundHost: '', allowedHosts: [] });
const FOR_GOOD: Right = { untilMs: undefined };

type Judged = (Admitted & { readonly route: Route }) | Refusal | null;

/** Query parameters of the platform. All other parameters are for the exposed server. */
const OWN_PARAMETERS = new Set([LINK_PARAMETER]);
/** Routes of public URLs in the metrics, which must not contain the paths of exposed servers. */
const BY_HOST_ROUTE: Route = { url: '(address)', access: 'public', longLived: true };
const BY_PATH_ROUTE: Route = { url: '/:tenant/:name/*', access: 'public', longLived: true };
/**
 * First segments of the service's own paths. Paths below them never lead to a sandbox, even if no route
 * exists.
 */
export const OWN_PATHS: ReadonlySet<string> = new Set([
  '',
  'api',
  'serverless',
  'assets',
  'docs',
  'e2b',
  'healthz',
  'readyz',
  'metrics',
  'openapi.json',
  '.address',
]);

/**
 * Adds the public URLs: `<name>--<namespace>.<domain>` by host, `/<tenant>/<name>/` by path.
 * By host, an exposed server has its own origin and behaves like a server on its own machine.
 * By path, it shares the origin of the service: its pages are sandboxed, and it has no cookies
 * (docs/security.md).
 */
export function addAddressRoutes(app: FastifyInstance, passage: Passage, options: AddressOptions): void {
  const found = new WeakMap<IncomingMessage, Found>();
  const serve = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const it = found.get(request.raw);
    if (it === undefined) throw notFound('there is no address');
    if (it.kind === 'redirect') return reply.code(it.status).headers(it.headers).send();
    const { target, headerChanges, path } = it;
    const tokens = await (headerChanges === BY_HOST ? ownTokens : platformTokens)(request.raw, options.auth);
    const to = { access: target.open, port: target.port, path: withoutOwn(path, tokens), tokens, headerChanges };
    return await passage.pass(request, reply, to);
  };

  const { byHost, ofPath } = addressGates(app, options, found);
  app.register(async scope => {
    disableBodyParsing(scope);
    const config = { access: 'public', longLived: true, livesWith: { thing: 'instance', keyOf: () => null } } as const;
    for (const method of passage.methods) {
      scope.route({ method, url: BY_HOST_URL, config: { ...config, gate: byHost }, ...passage.handlers(serve) });
      for (const url of ['/:tenant/:name', '/:tenant/:name/*']) {
        scope.route({ method, url, config: { ...config, gate: ofPath }, ...passage.handlers(serve) });
      }
    }
  });
}

/** Returns the gates of both kinds of public URL. For an admitted request, `found` contains the target. */
function addressGates(app: FastifyInstance, options: AddressOptions, found: WeakMap<IncomingMessage, Found>) {
  const letIn = (
    raw: IncomingMessage,
    route: Route,
    it: Extract<Found, { kind: 'pass' }>,
    { prefix, untilMs }: Right & { readonly prefix: string | null },
  ) => {
    found.set(raw, it);
    if (forwardedOf(raw) === undefined) tellOrigin(raw, schemeOf(raw), prefix);
    const { tenant, livesWith } = it.target;
    return { tenant, role: 'user', untilMs, route: { ...route, livesWith } } as const;
  };

  const byHost: OwnGate = async ({ raw }) => {
    const by = addressedByHost(raw);
    if (by === undefined) return null;
    if (by.problem !== null) return { reason: by.problem, ...refusal(400, `invalid request: ${by.problem}`) };
    const target = await options.targets.find(by.name);
    const visit = target && visitOf(raw, target, options.links);
    if (visit) {
      found.set(raw, visit);
      return { tenant: by.name.tenant, role: 'user', route: BY_HOST_ROUTE };
    }
    const right = forwardedOf(raw) ?? (await rightOf(raw, target, options));
    if ('status' in right) return right;
    if (target === null) return asRefusal(notFound(`there is nothing at ${by.host}`));
    const pass = { kind: 'pass', target, headerChanges: BY_HOST, path: by.url } as const;
    return letIn(raw, BY_HOST_ROUTE, pass, { prefix: null, untilMs: right.untilMs });
  };

  const ofPath: OwnGate = async ({ raw, params }): Promise<Judged> => {
    const { tenant = '', name: segment = '' } = params as Record<string, string>;
    const name = OWN_PATHS.has(tenant) ? null : parseAddressPath(tenant, segment);
    const prefix = name && addressPath(name);
    const url = raw.url ?? '';
    // Compared without decoding. The service does not serve escaped forms of this path.
    if (name === null || prefix === null || !`${url.split('?', 1)[0]}/`.startsWith(prefix)) return null;
    const target = await options.targets.find(name);
    if (target === null) return null;
    const isPublic = target.access === 'public';
    let right: Right | undefined = forwardedOf(raw);
    if (right === undefined) {
      const verdict = await app.gate(raw, {
        ...BY_PATH_ROUTE,
        access: isPublic ? 'public' : 'invoke',
        anyOrigin: isPublic,
        leadsInside: true,
      });
      if (isRefusal(verdict)) return verdict;
      if (!isPublic && !(await mayCome(raw, target, options.auth))) return null;
      right = { untilMs: verdict.untilMs };
    }
    // A service worker below the service's own host name could answer requests of the service's pages.
    if (raw.headers['service-worker'] !== undefined) {
      return asRefusal(permissionDenied('a service worker needs a host name of its own'));
    }
    const [path = '', query] = url.split(/\?(.*)/s, 2);
    if (`${path}/` === prefix && raw.method === 'GET' && !asksForUpgrade(raw)) {
      // Without the final slash, relative links of the page would lead outside of the prefix.
      const Location = query === undefined ? prefix : `${prefix}?${query}`;
      found.set(raw, { kind: 'redirect', status: 308, headers: { Location } });
      return { tenant, role: 'user', route: BY_PATH_ROUTE };
    }
    const headerChanges = byPath(prefix, (raw.headers.host ?? '').toLowerCase());
    const pass = { kind: 'pass', target, headerChanges, path: behind(url, prefix) } as const;
    return letIn(raw, BY_PATH_ROUTE, pass, { prefix: prefix.slice(0, -1), untilMs: right.untilMs });
  };

  return { byHost, ofPath };
}

/** Returns the right with which a request passes, or the refusal. */
async function rightOf(
  raw: IncomingMessage,
  target: AddressTarget | null,
  { auth, links }: AddressOptions,
): Promise<Right | Refusal> {
  if (target?.access === 'public') return FOR_GOOD;
  const unlessFromElsewhere = (right: Right) => (OWN_ORIGIN.isFromElsewhere(raw) ? crossSite(raw.headers) : right);
  if (auth === null) return unlessFromElsewhere(FOR_GOOD);
  const cookie = target?.access === 'link' ? ofCookie(raw, target, links) : null;
  if (cookie !== null) return unlessFromElsewhere(cookie);
  try {
    const identity = await identityOf(raw, auth);
    if (target === null || (identity.tenant !== undefined && identity.tenant !== target.tenant)) {
      return asRefusal(notFound(`there is nothing at ${(raw.headers.host ?? '').toLowerCase()}`));
    }
    checkAccess(identity, 'invoke');
    return { untilMs: identity.untilMs };
  } catch (error) {
    if (error instanceof ServiceError) return asRefusal(error);
    throw error;
  }
}

/** Returns true if the identity is of the target's tenant. The gate has already verified the token. */
async function mayCome(raw: IncomingMessage, target: AddressTarget, auth: TokenVerifier | null): Promise<boolean> {
  if (auth === null) return true;
  const token = tokenOf(raw) ?? '';
  const identity = auth.known(token) ?? (await auth.verify(token));
  return identity.tenant === undefined || identity.tenant === target.tenant;
}

/**
 * Converts a signed link to a cookie of this host, and redirects to the URL without the signature.
 * The exposed server therefore never sees the link. Returns null if the request has no valid link.
 */
function visitOf(raw: IncomingMessage, { access, subject }: AddressTarget, links: LinkSigner): Found | null {
  const query = queryOf(raw.url ?? '');
  if (access !== 'link' || raw.method !== 'GET' || asksForUpgrade(raw) || query === undefined) return null;
  const [signed] = valuesOf(query, LINK_PARAMETER);
  const until = signed === undefined ? null : links.verify('link', subject, signed);
  if (until === null) return null;
  const path = (raw.url as string).split('?', 1)[0] as string;
  const left = pairsForSandbox(query, OWN_PARAMETERS, []);
  const secure = schemeOf(raw) === 'https' ? '; Secure' : '';
  const cookie = links.sign('cookie', subject, until);
  return {
    kind: 'redirect',
    status: 303,
    headers: {
      // A browser would read a path that begins with two slashes as another host.
      Location: `${path.replace(/^[/\\]+/, '/')}${left.length === 0 ? '' : `?${left.join('&')}`}`,
      'Set-Cookie': `${LINK_COOKIE}=${cookie}; Path=/; Max-Age=${links.secondsLeft(until)}; HttpOnly; SameSite=Lax${secure}`,
      'Cache-Control': 'no-store',
      'Referrer-Policy': 'no-referrer',
    },
  };
}

/**
 * Returns the right of the link cookie; null: there is no valid one.
 * A server on a neighbouring host may have set a cookie of the same name. The longest valid right counts.
 */
function ofCookie({ headers }: IncomingMessage, { subject }: AddressTarget, links: LinkSigner): Right | null {
  const untilSeconds = (headers.cookie ?? '')
    .split(/;\s*/)
    .filter(pair => pair.startsWith(`${LINK_COOKIE}=`))
    .map(pair => links.verify('cookie', subject, pair.slice(LINK_COOKIE.length + 1)) ?? 0)
    .reduce((one, other) => Math.max(one, other), 0);
  return untilSeconds === 0 ? null : { untilMs: untilSeconds * 1000 };
}

function asRefusal(error: ServiceError): Refusal {
  const status = error.code === 'not_found' ? 404 : error instanceof Away ? 503 : (REFUSAL_STATUS[error.code] ?? 500);
  return { reason: error, ...refusal(status, error.message) };
}

/** Returns the path and query after `prefix`. The URL may also be `prefix` without its final slash. */
function behind(url: string, prefix: string): string {
  const rest = url.slice(prefix.length - 1);
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** Removes the platform's parameters and tokens from the query. */
function withoutOwn(url: string, tokens: readonly string[]): string {
  const query = queryOf(url);
  if (query === undefined) return url;
  const kept = pairsForSandbox(query, OWN_PARAMETERS, tokens);
  return url.slice(0, url.indexOf('?')) + (kept.length === 0 ? '' : `?${kept.join('&')}`);
}

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

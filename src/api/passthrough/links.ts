import { createHmac, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { AgentInstances } from '../../agents/contract.ts';
import type { AddressName, Expose } from '../../core/address.ts';
import { failedPrecondition, notFound } from '../../core/error.ts';
import { failAtFirst, type JsonObject } from '../../core/json.ts';
import { integer } from '../../core/kind.ts';
import { LIMITS } from '../../core/limits.ts';
import { object, optional, type ValueOf } from '../../core/shape.ts';
import { formatUrn, parseUrn } from '../../core/urn.ts';
import { withWarnings } from '../../http/answer.ts';
import { errorDocs, Warnings } from '../../http/docs.ts';
import { readRequest } from '../../http/request.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { cookiesWithoutToken, setsPlatformCookie } from '../forwarded-headers.ts';
import {
  type AddressDomain,
  addressUrl,
  agentSubject,
  type ExposedFunctions,
  functionSubject,
} from './address-targets.ts';

/** The use of a signature. A link's signature is not valid as a cookie, and vice versa. */
export type LinkUse = 'link' | 'cookie';

/** The query parameter of a signed link. */
export const LINK_PARAMETER = 'rookery_link';

const SIGNED = /^([0-9a-z]{1,10})\.([\w-]{43})$/;

/**
 * Signs the right to use a public URL until a time.
 * A signature contains nothing else: it names no tenant, and is no token of the service.
 * `subject` names the target. All replicas have the same key.
 */
export class LinkSigner {
  readonly #key: Buffer;
  readonly #now: () => number;

  constructor(key: Buffer, now: () => number = Date.now) {
    this.#key = key;
    this.#now = now;
  }

  sign(use: LinkUse, subject: string, untilSeconds: number): string {
    return `${untilSeconds.toString(36)}.${this.#mac(use, subject, untilSeconds)}`;
  }

  /**
   * Returns the end of a signature's validity, in seconds since 1970. null: the signature is invalid or
   * expired.
   */
  verify(use: LinkUse, subject: string, signed: string): number | null {
    const [, until = '', mac = ''] = SIGNED.exec(signed) ?? [];
    const untilSeconds = Number.parseInt(until, 36);
    if (until === '' || untilSeconds * 1000 <= this.#now()) return null;
    const right = this.#mac(use, subject, untilSeconds);
    return timingSafeEqual(Buffer.from(mac), Buffer.from(right)) ? untilSeconds : null;
  }

  untilSeconds(lifeSeconds: number): number {
    return Math.floor(this.#now() / 1000) + lifeSeconds;
  }

  secondsLeft(untilSeconds: number): number {
    return Math.max(0, untilSeconds - Math.floor(this.#now() / 1000));
  }

  #mac(use: LinkUse, subject: string, untilSeconds: number): string {
    return createHmac('sha256', this.#key).update(`${use}\n${untilSeconds}\n${subject}`).digest('base64url');
  }
}

/**
 * The cookie of a signed link. It belongs to the service: the program in a sandbox neither sees nor sets it.
 */
export const LINK_COOKIE = 'rookery_link';

/** The changes to headers for a kind of URL. */
export interface HeaderChanges {
  /** Returns the cookies for the sandbox; `''`: none. */
  readonly cookies: (sent: string) => string;
  /** Returns a `Set-Cookie` for the client; undefined: it is omitted. */
  readonly setCookie: (value: string) => string | undefined;
  readonly location: (value: string) => string;
  /** Additional headers of each answer, as alternating names and values. */
  readonly added: readonly string[];
}

/**
 * Sandboxes the pages of a server without its own host name, which therefore get an opaque origin.
 * Their scripts cannot call the API in the name of the user who views them.
 */
const SANDBOXED = [
  'Content-Security-Policy',
  'sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads',
] as const;

const asItIs = (value: string) => value;

/** Header changes for URLs by instance and port, at the service's own host name. */
export const BY_PORT: HeaderChanges = {
  cookies: cookiesWithoutToken,
  setCookie: value => (setsPlatformCookie(value) ? undefined : value),
  location: asItIs,
  added: SANDBOXED,
};

/** Header changes for public URLs by host. Pages, cookies and storage are restricted to that host name. */
export const BY_HOST: HeaderChanges = {
  cookies: sent => withoutLink(cookiesWithoutToken(sent)),
  setCookie: value => (setsPlatformCookie(value) || value.includes(LINK_COOKIE) ? undefined : withoutDomain(value)),
  location: asItIs,
  added: [],
};

/**
 * Returns the header changes for public URLs by path, at the service's own host name.
 * The cookies of that name belong to the service or to other servers, so none is passed in either direction.
 */
export function byPath(prefix: string, host: string): HeaderChanges {
  return {
    cookies: () => '',
    setCookie: () => undefined,
    location: value => belowPrefix(value, prefix, host),
    added: SANDBOXED,
  };
}

function withoutLink(cookies: string): string {
  return cookies
    .split('; ')
    .filter(pair => !pair.includes(LINK_COOKIE))
    .join('; ');
}

/** Removes the `Domain` of a cookie. Browsers would send such a cookie to neighbouring hosts too. */
function withoutDomain(value: string): string {
  return value
    .split(';')
    .filter((part, index) => index === 0 || !/^\s*domain\s*(=|$)/i.test(part))
    .join(';');
}

/** Maps a redirect of the inner server to the public path. `prefix` ends with a slash. */
function belowPrefix(value: string, prefix: string, host: string): string {
  const absolute = /^https?:\/\/([^/?#\\]*)(\/.*)?$/is.exec(value);
  if (absolute !== null && absolute[1]?.toLowerCase() === host) return prefix + (absolute[2] ?? '/').slice(1);
  return value.startsWith('/') && !/^\/[/\\]/.test(value) ? prefix + value.slice(1) : value;
}

export interface LinkRoutesOptions {
  readonly instances: Pick<AgentInstances, 'get'>;
  readonly functions: ExposedFunctions | null;
  readonly ownTenantOnly: boolean;
  readonly links: LinkSigner;
  readonly domain: AddressDomain;
}

const { linkSeconds } = LIMITS;
const LINK_FIELDS = {
  expires_seconds: optional(
    integer({ min: linkSeconds.min, max: linkSeconds.max }),
    linkSeconds.default,
    'How long the link, and the session that it opens, is valid.',
  ),
};
const LINK = object<ValueOf<typeof LINK_FIELDS>>(LINK_FIELDS);

const Link = Type.Object(
  {
    code: Type.Literal(200),
    url: Type.String({
      description: 'Whoever has it may come until then; it leads to the address without the signature.',
    }),
    expires_at: Type.String({ format: 'date-time' }),
    warnings: Warnings,
  },
  { title: 'AddressLink' },
);
const docs = (operationId: string, what: string, tag: string, parameters: object): RouteDocs => ({
  tags: [tag],
  operationId,
  summary: `Make a signed link to the address of ${what}`,
  description:
    'Nothing is stored: a link ends with its time, or when what it leads to is deleted or not exposed with `link` any more.',
  params: parameters,
  body: LINK.describe(),
  response: {
    200: { description: 'The link.', content: { 'application/json': { schema: Link } } },
    404: errorDocs('There is no such thing.'),
    409: errorDocs('It is not exposed with `"access": "link"`, or has no host name.'),
  },
});

/** Adds the routes that create signed links to public URLs, for callers that may change the target. */
export function addLinkRoutes(app: FastifyInstance, options: LinkRoutesOptions): void {
  const { instances, functions, links, domain } = options;
  const made = (what: string, name: AddressName, expose: Expose | null | undefined, subject: string, host?: string) => {
    if (expose?.access !== 'link') throw failedPrecondition(`${what} is not exposed with "access": "link"`);
    const address = addressUrl(name, domain, host);
    if (address === null)
      throw failedPrecondition(`${what} has no host name: the tenant ${name.tenant} cannot stand in one`);
    return (lifeSeconds: number) => {
      const until = links.untilSeconds(lifeSeconds);
      const url = `${address}?${LINK_PARAMETER}=${links.sign('link', subject, until)}`;
      return { code: 200, url, expires_at: new Date(until * 1000).toISOString() };
    };
  };
  const read = (body: JsonObject) => LINK.read(body, '', failAtFirst) as ValueOf<typeof LINK_FIELDS>;
  /** Returns the lifetime of a link. An empty body means the default. */
  const lifeOf = (request: Parameters<typeof readRequest>[0]) =>
    (request.body === undefined ? { expires_seconds: linkSeconds.default } : readRequest(request, LINK, read))
      .expires_seconds;

  const byId = Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) });
  app.post<{ Params: { instanceId: string } }>(
    '/api/agent/:instanceId/link',
    { config: { access: 'write', docs: docs('linkAgent', 'an agent', 'agent', byId) } },
    async request => {
      const { tenant, params, headers } = request;
      const seconds = lifeOf(request);
      const { id, spec } = await instances.get(tenant, params.instanceId);
      const what = `agent ${spec.namespace}/${spec.name}`;
      const link = made(what, spec, spec.expose, agentSubject(id), headers.host)(seconds);
      return withWarnings(link, request.warnings);
    },
  );

  if (functions === null) return;
  const byUrn = Type.Object({
    urn: Type.String({ description: 'The URN of the function, with a version or without.' }),
  });
  app.post<{ Params: { urn: string } }>(
    '/serverless/v1/functions/:urn/link',
    { config: { access: 'write', docs: docs('linkFunction', 'a function', 'functions', byUrn) } },
    async request => {
      const seconds = lifeOf(request);
      const urn = parseUrn(request.params.urn);
      const unknown = notFound(`there is no function ${request.params.urn}`);
      if (urn === null || (options.ownTenantOnly && urn.tenant !== request.tenant)) throw unknown;
      const expose = await functions.exposed(formatUrn({ ...urn, version: '$latest' }));
      const [, namespace = '', name = ''] = urn.name.split('@');
      const subject = functionSubject(formatUrn({ ...urn, version: null }));
      const it = { tenant: urn.tenant, namespace, name };
      const link = made(`function ${urn.name}`, it, expose, subject, request.headers.host)(seconds);
      return withWarnings(link, request.warnings);
    },
  );
}

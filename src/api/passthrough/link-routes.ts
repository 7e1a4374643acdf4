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
import {
  type AddressDomain,
  addressUrl,
  agentSubject,
  type ExposedFunctions,
  functionSubject,
} from './address-targets.ts';
import { LINK_PARAMETER, type LinkSigner } from './link.ts';

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

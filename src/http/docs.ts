import type { RouteOptions } from 'fastify';
import { Type } from 'typebox';
import { TENANT_PATTERN } from '../core/tenant.ts';
import type { RouteDocs } from './route-config.ts';

/** The member `warnings` of an answer. */
export const Warnings = Type.Optional(
  Type.Array(Type.String(), {
    description: 'Fields of the body that were ignored, and what else the caller should know.',
  }),
);

/** The body of an error: `{"code":<status>,"message":"…"}`. */
export const ERROR_SCHEMA = Type.Object({
  code: Type.Integer(),
  message: Type.String(),
  warnings: Warnings,
});

const TRACE_HEADERS = {
  'x-trace-id': {
    type: 'string',
    description: 'Trace id of the call; that of `traceparent` when absent, else made by the service.',
  },
  traceparent: { type: 'string', description: 'W3C trace context; continued.' },
  tenantId: {
    type: 'string',
    pattern: `^${TENANT_PATTERN}$`,
    description: 'Tenant, default `default`. With authentication on it must be the tenant of the token.',
  },
} as const;

const ANSWER_HEADERS = { 'X-Trace-Id': { type: 'string', description: 'Trace id of the call.' } };

/** Documents an error answer. */
export function errorDocs(description: string, schema: object = ERROR_SCHEMA): object {
  return { description, content: { 'application/json': { schema } } };
}

/**
 * Builds the OpenAPI document of a route: its own `docs` plus the parts that the entry adds to every route.
 */
export function documentRoute(route: RouteOptions): object {
  const { access, docs, costly } = route.config ?? {};
  if (!docs) return { hide: true };
  const common: Record<number, object> = access === 'public' ? {} : refusals(docs, costly !== undefined);
  const response: Record<number, object> = { ...common, ...docs.response };
  for (const status of Object.keys(response)) {
    const answer = response[Number(status)] as Answer;
    // The entry answers its own refusals with JSON, whatever content type the route uses.
    const ofEntry = common[Number(status)] as Answer | undefined;
    const content = { ...ofEntry?.content, ...answer.content };
    const headers = { ...ANSWER_HEADERS, ...ofEntry?.headers, ...answer.headers };
    // An answer without a body must have no `content` member at all.
    response[Number(status)] = { ...answer, headers, ...(Object.keys(content).length === 0 ? {} : { content }) };
  }
  const own = docs.headers as { properties?: object; required?: string[] } | undefined;
  const { isBodyOptional, ...shown } = docs;
  return {
    ...shown,
    ...(isBodyOptional ? { [BODY_IS_OPTIONAL]: true } : {}),
    ...(access === 'public'
      ? { security: [] }
      : {
          headers: {
            type: 'object',
            properties: { ...TRACE_HEADERS, ...own?.properties },
            ...(own?.required === undefined ? {} : { required: own.required }),
          },
        }),
    response,
  };
}

/** Marker that `withOptionalBodies` reads and removes from the document. */
const BODY_IS_OPTIONAL = 'x-body-is-optional';

/** Marks the optional bodies of an entry's document. The OpenAPI plugin declares every body as required. */
export function withOptionalBodies<D extends { readonly paths?: object }>(document: D): D {
  for (const operations of Object.values(document.paths ?? {})) {
    for (const operation of Object.values(operations as Record<string, MarkedOperation>)) {
      if (operation[BODY_IS_OPTIONAL] !== true) continue;
      delete operation[BODY_IS_OPTIONAL];
      if (operation.requestBody) operation.requestBody.required = false;
    }
  }
  return document;
}

interface MarkedOperation {
  [BODY_IS_OPTIONAL]?: boolean;
  requestBody?: { required?: boolean };
}

interface Answer {
  readonly headers?: object;
  readonly content?: object;
}

/**
 * Documents the refusals of the entry. 429 applies to routes with a body and to costly reads, which are
 * bounded.
 */
function refusals(docs: RouteDocs, isCostly: boolean): Record<number, object> {
  return {
    400: errorDocs('The request is wrong; the message says where.'),
    401: {
      ...errorDocs('No valid token (with authentication on).'),
      headers: { 'WWW-Authenticate': { type: 'string', description: '`Bearer`' } },
    },
    403: errorDocs('The role is not enough, the tenant is another one than the token’s, or a cross-site request.'),
    ...(docs.body === undefined ? {} : { 413: errorDocs('The body is too large.') }),
    ...(docs.body === undefined && !isCostly
      ? {}
      : {
          429: {
            ...errorDocs('Too much of the kind is open, of the tenant or in all.'),
            headers: { 'Retry-After': { type: 'integer', description: 'Seconds.' } },
          },
        }),
    421: errorDocs('The Host is not one that this server answers to.'),
    500: errorDocs('A fault of the service.'),
  };
}

/** Parts that the documents of files, terminals and byte channels share. */
export const bytes = Type.String({ format: 'binary' });
export const errors = {
  400: errorDocs('The request is wrong, or what is at the path is not what is needed; the message says why.'),
  403: errorDocs('The role is not enough, or the sandbox’s user may not do this.'),
  404: errorDocs('`instance not found: <id>`, or there is nothing at the path.'),
  409: errorDocs('The instance is in a state in which this cannot be done, or the target already exists.'),
  429: errorDocs('Too much is open in this sandbox, or its disk has no room.'),
  503: errorDocs('What runs the sandbox does not answer.'),
  504: errorDocs('It took too long.'),
};
export const upgrade = {
  101: { description: 'It is a WebSocket now.' },
  426: errorDocs('The request did not ask for an upgrade to a WebSocket.'),
};

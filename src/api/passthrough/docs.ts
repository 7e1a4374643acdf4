import { Type } from 'typebox';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { bytes, errors, upgrade } from '../io-docs.ts';
import { anyText, flag, integer, required } from '../query.ts';

const channel = ['byte channels'];
/** The query that names the target of a channel. */
export const TARGET_QUERY = {
  instance: required(anyText({ minLength: 1, description: 'The id of an agent, or of an instance of a function.' })),
  port: required(
    integer({ min: 1, max: 65_535 }, undefined, { description: 'A TCP port on 127.0.0.1 inside the sandbox.' }),
  ),
};
export const TUNNEL_QUERY = {
  ...TARGET_QUERY,
  half_close: flag('The end of what comes from inside is reported by a message.'),
};
const unreachable = {
  400: errors[400],
  404: errors[404],
  409: errors[409],
  502: errorDocs('Nothing listens on the port, or what does broke off before it answered.'),
  504: errorDocs('The port did not answer in time.'),
};
const http = (operationId: string, method: string): RouteDocs => ({
  tags: channel,
  operationId,
  summary: `Pass a ${method} on to a server inside a sandbox`,
  description:
    'Method, path, query, headers and body go through as they are, both ways, but for what belongs to the service: `instance`, `port` and `token` of the query, tokens and tenants. Every other method, and upgrades such as WebSockets, go through too.',
  params: Type.Object({ '*': Type.String({ description: 'The path inside.' }) }),
  querystring: describeParameters(TARGET_QUERY),
  response: {
    200: { description: 'What the server answers, whatever its status.', content: { '*/*': { schema: bytes } } },
    ...unreachable,
  },
});

/** The OpenAPI documentation of the channels to ports inside sandboxes. */
export const PASSTHROUGH_DOCS = {
  tunnel: {
    tags: channel,
    operationId: 'openTunnel',
    summary: 'Bytes to and from a port inside a sandbox, over a WebSocket',
    description:
      'Binary messages are the bytes, both ways. docs/guides/files-terminals-ports.md says how each side ends.',
    querystring: describeParameters(TUNNEL_QUERY),
    response: { ...upgrade, ...unreachable },
  },
  http: {
    GET: http('passGet', 'GET'),
    POST: http('passPost', 'POST'),
    PUT: http('passPut', 'PUT'),
    PATCH: http('passPatch', 'PATCH'),
    DELETE: http('passDelete', 'DELETE'),
  },
} as const;

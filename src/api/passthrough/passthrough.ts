import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { invalidRequest } from '../../core/error.ts';
import { describeParameters, readParameters, type Sent } from '../../core/parameter.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import { bytes, errorDocs, errors, upgrade } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { queryOf } from '../../lib/query-pairs.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { LIVES_WITH_INSTANCE } from '../lives-with.ts';
import { anyText, flag, integer, required } from '../query.ts';
import { answerUpgradeRequired, type SocketLives } from '../web-socket.ts';
import { pairsForSandbox, platformTokens } from './headers.ts';
import { BY_PORT } from './links.ts';
import { answerUnreachable, dial, disableBodyParsing, type Passage, serveTunnel, type Tunnel } from './passage.ts';

export interface PassthroughOptions {
  /**
   * Opens access to the sandbox of an agent or a function instance.
   * Fails with `not_found` (`instance not found: <id>`).
   */
  readonly access: (tenant: string, instanceId: string) => Promise<SandboxAccess>;
  /**
   * Recognizes the tokens of clients, which the program in a sandbox must not see. null: authentication is
   * off.
   */
  readonly auth: TokenVerifier | null;
}

/** Query parameters of the platform. All other parameters are for the sandbox. */
const OWN_PARAMETERS = new Set(['instance', 'port', 'token']);
const HTTP_PREFIX = '/serverless/v1/http';

/**
 * Adds `/serverless/v1/ws` and `/serverless/v1/http/…`, which pass bytes unchanged to a port in a sandbox.
 */
export function addPassthroughRoutes(app: FastifyInstance, passage: Passage, options: PassthroughOptions): void {
  addTunnelRoute(app, options, passage.lives);

  const pass = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { port, instance } = readParameters(TARGET_QUERY, request.query as Sent);
    const tokens = await platformTokens(request.raw, options.auth);
    const path = pathInside(request.raw.url ?? '', tokens);
    const access = () => options.access(request.tenant, instance);
    return await passage.pass(request, reply, { access, port, path, tokens, headerChanges: BY_PORT });
  };

  app.register(async scope => {
    disableBodyParsing(scope);
    const config = {
      access: 'invoke',
      leadsInside: true,
      longLived: true,
      livesWith: LIVES_WITH_INSTANCE,
      hasForeignQuery: true,
    } as const;
    for (const method of passage.methods) {
      for (const url of [HTTP_PREFIX, `${HTTP_PREFIX}/*`]) {
        scope.route({
          method,
          url,
          config: { ...config, ...docsOf(method, url) },
          ...passage.handlers(pass),
        });
      }
    }
  });
}

function addTunnelRoute(app: FastifyInstance, options: PassthroughOptions, lives: SocketLives): void {
  const tunnels = new WeakMap<object, Tunnel>();
  app.route<{ Querystring: Sent }>({
    method: 'GET',
    url: '/serverless/v1/ws',
    config: { access: 'invoke', longLived: true, livesWith: LIVES_WITH_INSTANCE, docs: PASSTHROUGH_DOCS.tunnel },
    exposeHeadRoute: false,
    // Runs before the handshake, so that failures are ordinary answers.
    preHandler: async (request, reply) => {
      if (!request.ws) return answerUpgradeRequired(reply);
      const { port, instance, half_close } = readParameters(TUNNEL_QUERY, request.query);
      const left = lives.open(request);
      const access = await options.access(request.tenant, instance);
      try {
        const connection = await dial(access, port, left);
        connection.on('error', () => undefined);
        left.signal.addEventListener('abort', () => connection.destroy(), { once: true });
        tunnels.set(request.raw, { connection, hasHalves: half_close, signal: left.signal });
        return undefined;
      } catch (error) {
        return answerUnreachable(reply, error);
      }
    },
    handler: (_request, reply) => answerUpgradeRequired(reply),
    wsHandler: (socket, request) => {
      const tunnel = tunnels.get(request.raw);
      if (tunnel) void serveTunnel(socket, request, tunnel);
    },
  });
}

/** Returns the path after the prefix, without decoding. */
function pathInside(url: string, tokens: readonly string[]): string {
  const path = url.split('?', 1)[0] as string;
  if (!path.startsWith(HTTP_PREFIX)) throw invalidRequest(`the path must begin with ${HTTP_PREFIX}/, unencoded`);
  const query = pairsForSandbox(queryOf(url) ?? '', OWN_PARAMETERS, tokens).join('&');
  return `${path.slice(HTTP_PREFIX.length) || '/'}${query === '' ? '' : `?${query}`}`;
}

function docsOf(method: string, url: string) {
  if (url === HTTP_PREFIX || !Object.hasOwn(PASSTHROUGH_DOCS.http, method)) return {};
  return { docs: PASSTHROUGH_DOCS.http[method as keyof typeof PASSTHROUGH_DOCS.http] };
}

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
  502: errorDocs('Nothing listens on the port, or its program closed the connection without an answer.'),
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

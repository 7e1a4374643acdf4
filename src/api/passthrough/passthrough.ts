import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { invalidRequest } from '../../core/error.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import { queryOf } from '../../lib/query-pairs.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { LIVES_WITH_INSTANCE } from '../lives-with.ts';
import { answerUpgradeRequired, type SocketLives } from '../web-socket.ts';
import { PASSTHROUGH_DOCS, TARGET_QUERY, TUNNEL_QUERY } from './docs.ts';
import { pairsForSandbox, platformTokens } from './headers.ts';
import { answerUnreachable, dial, leaveBodies, type Passage } from './passage.ts';
import { serveTunnel, type Tunnel } from './tunnel.ts';
import { BY_PORT } from './way.ts';

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
    return await passage.pass(request, reply, { access, port, path, tokens, way: BY_PORT });
  };

  app.register(async scope => {
    leaveBodies(scope);
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
      const left = lives.begin(request);
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

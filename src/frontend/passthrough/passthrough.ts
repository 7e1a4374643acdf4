import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { invalidRequest, ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { refusal, sendError } from '../../http/answer.ts';
import { answerController } from '../../http/caller.ts';
import type { TokenVerifier } from '../../http/credentials.ts';
import { within } from '../../lib/deadline.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { type Query, readQuery } from '../query.ts';
import { answerUpgradeRequired, SocketLives } from '../web-socket.ts';
import { PASSTHROUGH_DOCS, TARGET_QUERY, TUNNEL_QUERY } from './docs.ts';
import { platformTokens, queryForSandbox } from './headers.ts';
import { passRequest } from './http.ts';
import { serveTunnel, type Tunnel } from './tunnel.ts';

export interface PassthroughOptions {
  /** Ways into the sandbox of an agent or of a function's instance. Fails with `not_found` (`instance not found: <id>`). */
  readonly access: (tenant: string, instanceId: string) => Promise<SandboxAccess>;
  /** Who knows the tokens of callers, which what runs in a sandbox may not see; null: there are none. */
  readonly auth: TokenVerifier | null;
}

type Request = FastifyRequest<{ Querystring: Query }>;

const HTTP_PREFIX = '/serverless/v1/http';
/** Beside those that the router knows: what WebDAV and others add. They may have bodies. */
const MORE_METHODS = ['COPY', 'LOCK', 'MKCOL', 'MOVE', 'PROPFIND', 'PROPPATCH', 'QUERY', 'REPORT', 'SEARCH', 'UNLOCK'];
const BAD_GATEWAY = 502;

/** `/serverless/v1/ws` and `/serverless/v1/http/…`: bytes to and from a port inside a sandbox, unchanged. */
export function addPassthroughRoutes(app: FastifyInstance, options: PassthroughOptions): void {
  const lives = new SocketLives(app);
  addTunnelRoute(app, options, lives);

  // Node gives what came behind the head of an upgrade to listeners of this event only.
  const heads = new WeakMap<IncomingMessage, Buffer>();
  app.server.prependListener('upgrade', (request, _socket, head) => heads.set(request, head));

  const pass = async (request: Request, reply: FastifyReply): Promise<FastifyReply> => {
    const { port, instance } = readQuery(TARGET_QUERY, request.query);
    const tokens = await platformTokens(request.raw, options.auth);
    const path = pathInside(request.raw.url ?? '', tokens);
    const left = request.ws ? lives.begin(request) : answerController(reply.raw);
    const access = await options.access(request.tenant, instance);
    try {
      const connection = await dial(access, port, left);
      left.signal.addEventListener('abort', () => connection.destroy(), { once: true });
      const upgradeHead = heads.get(request.raw) ?? null;
      return await passRequest(request, reply, { connection, path, port, tokens, upgradeHead });
    } catch (error) {
      return answerUnreachable(reply, error);
    }
  };

  const methods = new Set(app.supportedMethods);
  for (const method of MORE_METHODS) {
    if (!methods.has(method)) app.addHttpMethod(method, { hasBody: true });
    methods.add(method);
  }
  app.register(async scope => {
    // The body is passed on as it comes.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    for (const method of methods) {
      for (const url of [HTTP_PREFIX, `${HTTP_PREFIX}/*`]) {
        scope.route<{ Querystring: Query }>({
          method,
          url,
          config: { access: 'invoke', longLived: true, ...docsOf(method, url) },
          exposeHeadRoute: false,
          // An upgrade never reaches the handler: the WebSocket plugin would answer it itself.
          preHandler: async (request, reply) => (request.ws ? pass(request, reply) : undefined),
          handler: pass,
        });
      }
    }
  });
}

function addTunnelRoute(app: FastifyInstance, options: PassthroughOptions, lives: SocketLives): void {
  const tunnels = new WeakMap<object, Tunnel>();
  app.route<{ Querystring: Query }>({
    method: 'GET',
    url: '/serverless/v1/ws',
    config: { access: 'invoke', longLived: true, docs: PASSTHROUGH_DOCS.tunnel },
    exposeHeadRoute: false,
    // Before the handshake, so that what is wrong is an ordinary answer.
    preHandler: async (request, reply) => {
      if (!request.ws) return answerUpgradeRequired(reply);
      const { port, instance, half_close } = readQuery(TUNNEL_QUERY, request.query);
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

/** What stands behind the prefix, as it was sent. */
function pathInside(url: string, tokens: readonly string[]): string {
  const [path = '', ...rest] = url.split('?');
  if (!path.startsWith(HTTP_PREFIX)) throw invalidRequest(`the path must begin with ${HTTP_PREFIX}/, unencoded`);
  const query = rest.length === 0 ? undefined : rest.join('?');
  return (path.slice(HTTP_PREFIX.length) || '/') + queryForSandbox(query, tokens);
}

async function dial(access: SandboxAccess, port: number, left: AbortController): Promise<Duplex> {
  const { dialTimeoutMs } = LIMITS;
  try {
    return await within(
      access.dial(port, left.signal),
      dialTimeoutMs,
      `port ${port} did not answer in ${dialTimeoutMs / 1000} s`,
    );
  } catch (error) {
    // Who still dials has nobody to do it for.
    left.abort();
    throw error;
  }
}

/** What cannot be reached is 502 here: the service itself is well. */
function answerUnreachable(reply: FastifyReply, error: unknown): FastifyReply {
  if (!(error instanceof ServiceError) || error.code !== 'unavailable') throw error;
  return sendError(reply, error, refusal(BAD_GATEWAY, error.message));
}

function docsOf(method: string, url: string) {
  if (url === HTTP_PREFIX || !Object.hasOwn(PASSTHROUGH_DOCS.http, method)) return {};
  return { docs: PASSTHROUGH_DOCS.http[method as keyof typeof PASSTHROUGH_DOCS.http] };
}

import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { refusal, sendError } from '../../http/answer.ts';
import { answerController } from '../../http/caller.ts';
import { within } from '../../lib/deadline.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { SocketLives } from '../web-socket.ts';
import { passRequest } from './http.ts';
import type { Way } from './way.ts';

export interface Destination {
  /** Asked once there is a signal of the caller's. */
  readonly access: (signal: AbortSignal) => Promise<SandboxAccess>;
  readonly port: number;
  /** With its query. */
  readonly path: string;
  /** The platform's, which the request carries. */
  readonly tokens: readonly string[];
  readonly way: Way;
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply | undefined>;

/** Beside those that the router knows: what WebDAV and others add. They may have bodies. */
const MORE_METHODS = ['COPY', 'LOCK', 'MKCOL', 'MOVE', 'PROPFIND', 'PROPPATCH', 'QUERY', 'REPORT', 'SEARCH', 'UNLOCK'];
const BAD_GATEWAY = 502;

/** Requests of any method, and upgrades, on their way to ports inside sandboxes, as they come. */
export class Passage {
  readonly lives: SocketLives;
  readonly methods: ReadonlySet<string>;
  /** Node gives what came behind the head of an upgrade to listeners of this event only. */
  readonly #heads = new WeakMap<IncomingMessage, Buffer>();

  constructor(app: FastifyInstance) {
    this.lives = new SocketLives(app);
    app.server.prependListener('upgrade', (request, _socket, head) => this.#heads.set(request, head));
    const methods = new Set(app.supportedMethods);
    for (const method of MORE_METHODS) {
      if (!methods.has(method)) app.addHttpMethod(method, { hasBody: true });
      methods.add(method);
    }
    this.methods = methods;
  }

  async pass(request: FastifyRequest, reply: FastifyReply, to: Destination): Promise<FastifyReply> {
    const left = request.ws ? this.lives.begin(request) : answerController(reply.raw);
    const access = await to.access(left.signal);
    try {
      const connection = await dial(access, to.port, left);
      left.signal.addEventListener('abort', () => connection.destroy(), { once: true });
      const upgradeHead = this.#heads.get(request.raw) ?? null;
      return await passRequest(request, reply, { connection, upgradeHead, ...to });
    } catch (error) {
      return answerUnreachable(reply, error);
    }
  }

  /** How a route of it is: the body is passed on as it comes, and an upgrade never reaches the handler, since the WebSocket plugin would answer it itself. */
  handlers(handler: Handler) {
    return {
      exposeHeadRoute: false,
      preHandler: async (request: FastifyRequest, reply: FastifyReply) =>
        request.ws ? handler(request, reply) : undefined,
      handler,
    };
  }
}

/** No body is read before it is passed on. */
export function leaveBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
}

export async function dial(access: SandboxAccess, port: number, left: AbortController): Promise<Duplex> {
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

/** A server inside that cannot be reached is 502: the service itself is well. */
export function answerUnreachable(reply: FastifyReply, error: unknown): FastifyReply {
  if (!(error instanceof ServiceError) || error.code !== 'unavailable') throw error;
  return sendError(reply, error, refusal(BAD_GATEWAY, error.message));
}

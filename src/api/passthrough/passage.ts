import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import { messageOf, ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { answerController } from '../../http/access/caller.ts';
import { refusal, sendError } from '../../http/answer.ts';
import { pause } from '../../lib/backoff.ts';
import { within } from '../../lib/deadline.ts';
import { receive, send, sendBinary } from '../../lib/socket-stream.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { CLOSE, close, keepAlive, SocketLives } from '../web-socket.ts';
import { passRequest } from './http.ts';
import type { HeaderChanges } from './links.ts';

export interface Destination {
  /** Opens access to the sandbox. Called once the client's signal exists. */
  readonly access: (signal: AbortSignal) => Promise<SandboxAccess>;
  readonly port: number;
  /** The path with its query. */
  readonly path: string;
  /** The platform's tokens in the request. */
  readonly tokens: readonly string[];
  readonly headerChanges: HeaderChanges;
  /** Delays before further attempts while nothing listens on the port. Absent: one attempt. */
  readonly dialDelaysMs?: readonly number[];
  /** Answers if there is no connection to the port. Absent: 502 or 504 with the reason. */
  readonly unreachable?: (error: ServiceError) => Promise<FastifyReply>;
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply | undefined>;

/**
 * Methods of WebDAV and other standards, in addition to those that the router supports. They may have bodies.
 */
const MORE_METHODS = ['COPY', 'LOCK', 'MKCOL', 'MOVE', 'PROPFIND', 'PROPPATCH', 'QUERY', 'REPORT', 'SEARCH', 'UNLOCK'];
const BAD_GATEWAY = 502;

/** Passes requests of any method, and upgrades, to ports in sandboxes. */
export class Passage {
  readonly lives: SocketLives;
  readonly methods: ReadonlySet<string>;
  /** Bytes after the head of an upgrade. Node passes them only to listeners of this event. */
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
    const left = request.ws ? this.lives.open(request) : answerController(reply.raw);
    const access = await to.access(left.signal);
    let connection: Duplex;
    try {
      connection = await dial(access, to.port, left, to.dialDelaysMs);
    } catch (error) {
      if (to.unreachable === undefined || !isNoConnection(error)) return answerUnreachable(reply, error);
      return await to.unreachable(error);
    }
    try {
      left.signal.addEventListener('abort', () => connection.destroy(), { once: true });
      const upgradeHead = this.#heads.get(request.raw) ?? null;
      return await passRequest(request, reply, { connection, upgradeHead, ...to });
    } catch (error) {
      return answerUnreachable(reply, error);
    }
  }

  /**
   * Returns the route options that pass the body as a stream.
   * An upgrade is handled before the handler, because the WebSocket plugin would answer it there.
   */
  handlers(handler: Handler) {
    return {
      exposeHeadRoute: false,
      preHandler: async (request: FastifyRequest, reply: FastifyReply) =>
        request.ws ? handler(request, reply) : undefined,
      handler,
    };
  }
}

/** Keeps bodies unread, so that the routes can stream them. */
export function disableBodyParsing(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
}

export async function dial(
  access: SandboxAccess,
  port: number,
  left: AbortController,
  delaysMs: readonly number[] = [],
): Promise<Duplex> {
  const { dialTimeoutMs } = LIMITS;
  try {
    return await within(
      dialAgain(access, port, left.signal, delaysMs),
      dialTimeoutMs,
      `port ${port} did not answer in ${dialTimeoutMs / 1000} s`,
    );
  } catch (error) {
    // Stops a connect that is still running, because its result has no user.
    left.abort();
    throw error;
  }
}

async function dialAgain(
  access: SandboxAccess,
  port: number,
  signal: AbortSignal,
  [delayMs, ...later]: readonly number[],
): Promise<Duplex> {
  try {
    return await access.dial(port, signal);
  } catch (error) {
    if (delayMs === undefined || signal.aborted || !isUnreachable(error)) throw error;
    await pause(delayMs, signal);
    return await dialAgain(access, port, signal, later);
  }
}

/** Returns true if nothing listened on the port, or nothing answered in time. */
function isNoConnection(error: unknown): error is ServiceError {
  return isUnreachable(error) || (error instanceof ServiceError && error.code === 'deadline_exceeded');
}

function isUnreachable(error: unknown): error is ServiceError {
  return error instanceof ServiceError && error.code === 'unavailable';
}

/** Answers 502 if the server in the sandbox is unreachable, because the service itself works. */
export function answerUnreachable(reply: FastifyReply, error: unknown): FastifyReply {
  if (!isUnreachable(error)) throw error;
  return sendError(reply, error, refusal(BAD_GATEWAY, error.message));
}

export interface Tunnel {
  /** The connection to the port in the sandbox. `serveTunnel` owns and closes it. */
  readonly connection: Duplex;
  /** True if a message reports the end of the inner server's bytes. Otherwise that end closes the tunnel. */
  readonly hasHalves: boolean;
  readonly signal: AbortSignal;
}

const END = JSON.stringify({ type: 'end' });

/** Passes binary messages of a WebSocket as bytes to a port in a sandbox, and bytes back as messages. */
export async function serveTunnel(socket: WebSocket, request: FastifyRequest, tunnel: Tunnel): Promise<void> {
  const { connection, hasHalves, signal } = tunnel;
  const moved = keepAlive(socket, LIMITS.channelIdleMs);
  let failure: Error | undefined;
  connection.on('error', (error: Error) => {
    failure = error;
  });
  receive(socket, connection, text => {
    if (isEnd(text)) connection.end();
    else close(socket, CLOSE.policy, 'a text message must be {"type":"end"}');
  });
  socket.on('message', moved);
  socket.once('close', () => connection.destroy());
  const hasClosed = new Promise(resolve => connection.once('close', resolve));
  try {
    await sendBinary(socket, connection, moved);
    if (hasHalves) {
      await send(socket, END);
      await hasClosed;
    }
    if (failure) throw failure;
    close(socket, CLOSE.normal);
  } catch (error) {
    if (signal.aborted) return;
    request.failure = `the byte channel was interrupted: ${messageOf(error)}`;
    close(socket, CLOSE.fault, messageOf(error));
  }
}

function isEnd(text: string): boolean {
  try {
    return (JSON.parse(text) as { type?: unknown } | null)?.type === 'end';
  } catch {
    return false;
  }
}

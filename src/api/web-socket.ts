// Imported for its additions to the types of routes.

import type { IncomingMessage } from 'node:http';
import type {} from '@fastify/websocket';
import websocket from '@fastify/websocket';
import type { FastifyInstance, FastifyReply, FastifyRequest, preParsingHookHandler, RouteOptions } from 'fastify';
import type { WebSocket } from 'ws';
import { invalidRequest } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { onTokenEnd } from '../http/access/caller.ts';
import { refusal } from '../http/answer.ts';

/** Close codes of WebSockets (RFC 6455 §7.4). Codes from 4000 on are the service's own. */
export const CLOSE = {
  normal: 1000,
  /** The service stops. */
  goingAway: 1001,
  /** The client sent a message that is not allowed. */
  policy: 1008,
  /** The other end of the connection failed. */
  fault: 1011,
  /** No bytes moved for too long. */
  idle: 4000,
  /** The admitting token has expired. */
  expired: 4401,
} as const;

/** WebSockets by the requests that opened them. */
const webSockets = new WeakMap<IncomingMessage, WebSocket>();

const BODY_OF_UPGRADE = 'a request that asks for an upgrade must not have a body';
const PING_MS = 30_000;
const MAX_REASON_BYTES = 123;

/**
 * Adds WebSockets to an entry. When the entry closes, clients get a close code; the plugin would only
 * disconnect.
 * Routes without a WebSocket must be added afterwards. They answer an upgrade request like an ordinary
 * request.
 */
export function addWebSockets(app: FastifyInstance): void {
  const plain = new WeakMap<RouteOptions, RouteOptions['handler']>();
  app.addHook('onRoute', route => {
    if (route.wsHandler === undefined) plain.set(route, route.handler);
  });
  app.register(websocket, {
    options: { maxPayload: LIMITS.socketMessageBytes },
    preClose(done) {
      const { websocketServer } = this as unknown as FastifyInstance;
      for (const socket of websocketServer.clients) close(socket, CLOSE.goingAway, 'the service stops');
      websocketServer.close();
      done();
    },
  });
  app.after(() => {
    app.websocketServer.on('connection', (socket: WebSocket, request: IncomingMessage) => {
      webSockets.set(request, socket);
    });
    // The plugin wraps the handler of every route. Its handler would open a WebSocket and then disconnect.
    app.addHook('onRoute', route => {
      const handler = plain.get(route);
      if (handler === undefined) return;
      route.handler = handler;
      route.preParsing = [refuseBodyOfUpgrade, ...[route.preParsing ?? []].flat()];
    });
  });
}

/**
 * Refuses an upgrade request with a body. Node stops reading after the head, so the body would never arrive.
 */
const refuseBodyOfUpgrade: preParsingHookHandler = (request, _reply, payload, done) => {
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
  const hasBody = encoding !== undefined || (length !== undefined && length !== '0');
  done(request.ws && hasBody ? invalidRequest(BODY_OF_UPGRADE) : null, payload);
};

/**
 * Tracks WebSockets and other upgraded requests. Each has a controller.
 * The controller aborts when the connection or the server closes, or when the admitting token expires. After
 * the expiry the connection is closed too.
 */
export class SocketLives {
  readonly #open = new Set<AbortController>();

  constructor(app: FastifyInstance) {
    app.addHook('preClose', done => {
      for (const controller of this.#open) controller.abort();
      done();
    });
  }

  open(request: FastifyRequest): AbortController {
    const controller = new AbortController();
    const { socket } = request.raw;
    this.#open.add(controller);
    const end = () => {
      this.#open.delete(controller);
      controller.abort();
    };
    if (socket.destroyed) end();
    else socket.once('close', end);
    onTokenEnd(request, socket, () => {
      const webSocket = webSockets.get(request.raw);
      if (webSocket === undefined) socket.destroySoon();
      else close(webSocket, CLOSE.expired, 'the token has expired');
      // Ends the work behind the connection now, whether or not the client answers the close.
      end();
    });
    return controller;
  }
}

/** Answers a plain request to a route that accepts WebSockets only. */
export function answerUpgradeRequired(reply: FastifyReply): FastifyReply {
  reply.header('Upgrade', 'websocket').header('Connection', 'Upgrade');
  return reply.code(426).send(refusal(426, 'this is a WebSocket: the request must ask for an upgrade').body);
}

export function close(socket: WebSocket, code: number, reason = ''): void {
  // The peer's close frame comes after all that it sent before, which must be read first.
  socket.resume();
  const bytes = Buffer.from(reason);
  // A character that is cut in two would not be valid UTF-8.
  const end =
    bytes.length > MAX_REASON_BYTES
      ? bytes
          .subarray(0, MAX_REASON_BYTES)
          .toString()
          .replace(/\ufffd$/, '')
      : reason;
  socket.close(code, end);
}

/**
 * Terminates a connection whose peer has vanished, and closes one without activity for `idleMs`.
 * null: the connection has no idle limit. The returned function reports activity.
 */
export function keepAlive(socket: WebSocket, idleMs: number | null): () => void {
  let isAlive = true;
  socket.on('pong', () => {
    isAlive = true;
  });
  const pings = setInterval(() => {
    // While reading is paused, no pong is read. A ping that cannot be delivered ends such a connection.
    if (!isAlive && !socket.isPaused) socket.terminate();
    isAlive = false;
    if (socket.readyState === socket.OPEN) socket.ping();
  }, PING_MS).unref();
  const idle = idleMs === null ? undefined : armIdle(socket, idleMs);
  socket.once('close', () => {
    clearInterval(pings);
    clearTimeout(idle);
  });
  return () => void idle?.refresh();
}

function armIdle(socket: WebSocket, idleMs: number): NodeJS.Timeout {
  return setTimeout(() => close(socket, CLOSE.idle, `nothing moved for ${idleMs / 1000} s`), idleMs).unref();
}

// For what it adds to the types of routes.

import type { IncomingMessage } from 'node:http';
import type {} from '@fastify/websocket';
import websocket from '@fastify/websocket';
import type { FastifyInstance, FastifyReply, FastifyRequest, preParsingHookHandler, RouteOptions } from 'fastify';
import type { WebSocket } from 'ws';
import { invalidRequest } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { refusal } from '../http/answer.ts';
import { onTokenEnd } from '../http/token-end.ts';

/** Codes with which a WebSocket ends (RFC 6455 §7.4; from 4000 on they are ours). */
export const CLOSE = {
  normal: 1000,
  /** The service stops. */
  goingAway: 1001,
  /** The caller sent what it may not send. */
  policy: 1008,
  /** The other end broke. */
  fault: 1011,
  /** Nothing moved for too long. */
  idle: 4000,
  /** The token that let it in holds no longer. */
  expired: 4401,
} as const;

/** By the requests that became them. */
const webSockets = new WeakMap<IncomingMessage, WebSocket>();

const BODY_OF_UPGRADE = 'a request that asks for an upgrade must not have a body';
const PING_MS = 30_000;
const MAX_REASON_BYTES = 123;

/**
 * The WebSockets of an entry. When it closes, they learn why; the plugin itself would only hang up. Routes without one, which are added after this,
 * answer a request that asks for an upgrade as if it did not.
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
    // The plugin has put a handler of its own before every route, which would make a WebSocket of the request and hang up.
    app.addHook('onRoute', route => {
      const handler = plain.get(route);
      if (handler === undefined) return;
      route.handler = handler;
      route.preParsing = [refuseBodyOfUpgrade, ...[route.preParsing ?? []].flat()];
    });
  });
}

/** Node has stopped reading the connection behind the head: the body would never come. */
const refuseBodyOfUpgrade: preParsingHookHandler = (request, _reply, payload, done) => {
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
  const hasBody = encoding !== undefined || (length !== undefined && length !== '0');
  done(request.ws && hasBody ? invalidRequest(BODY_OF_UPGRADE) : null, payload);
};

/**
 * The life of WebSocket requests, and of those that ask for another protocol: each has a controller that aborts when its connection or the server
 * closes, and when the token that let it in holds no longer; then its connection ends too.
 */
export class SocketLives {
  readonly #open = new Set<AbortController>();

  constructor(app: FastifyInstance) {
    app.addHook('preClose', done => {
      for (const controller of this.#open) controller.abort();
      done();
    });
  }

  begin(request: FastifyRequest): AbortController {
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
      // What it leads to ends now, whether the caller answers the close or not.
      end();
    });
    return controller;
  }
}

/** Answers a plain request to a route that takes WebSockets only. */
export function answerUpgradeRequired(reply: FastifyReply): FastifyReply {
  reply.header('Upgrade', 'websocket').header('Connection', 'Upgrade');
  return reply.code(426).send(refusal(426, 'this is a WebSocket: the request must ask for an upgrade').body);
}

export function close(socket: WebSocket, code: number, reason = ''): void {
  // The other side's own close is behind what it sent before.
  socket.resume();
  const bytes = Buffer.from(reason);
  // A character that is cut in two would be no UTF-8.
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
 * Finds out that a peer is gone who never says so, and ends what is silent for `idleMs` (null: it may be silent). The returned function
 * counts as a move.
 */
export function keepAlive(socket: WebSocket, idleMs: number | null): () => void {
  let isAlive = true;
  socket.on('pong', () => {
    isAlive = true;
  });
  const pings = setInterval(() => {
    // While nothing is read, no pong is either; the ping that cannot be delivered ends the connection then.
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

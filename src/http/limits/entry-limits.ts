import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { LIMITS } from '../../core/limits.ts';
import { Bodies } from './bodies.ts';
import { Connections } from './connections.ts';
import { UnreadAnswers } from './unread-answers.ts';

/** Bounds of the memory that clients of an entry occupy. */
export interface EntryBounds {
  readonly maxConnections: number;
  /** Maximum number of connections from one remote address. */
  readonly maxConnectionsOfAddress: number;
  readonly maxBodyBytes: number;
  readonly bodyIdleMs: number;
  readonly maxAnswerBytes: number;
  readonly answerIdleMs: number;
  /** Idle time after which a connection without a new request is closed. */
  readonly keepAliveMs: number;
}

/** The defaults of the settings. */
export const DEFAULT_BOUNDS: EntryBounds = {
  maxConnections: 10_000,
  maxConnectionsOfAddress: 5000,
  maxBodyBytes: 256 * 1024 * 1024,
  bodyIdleMs: 30_000,
  maxAnswerBytes: 256 * 1024 * 1024,
  answerIdleMs: 60_000,
  keepAliveMs: 620_000,
};

export interface EntryLimits {
  readonly bodies: Bodies;
  readonly connections: Connections;
  readonly unread: UnreadAnswers;
}

/** Bounds the connections, request bodies and unread answers of an entry. Adds `app.adopt`. */
export function addLimits(app: FastifyInstance, bounds: EntryBounds): EntryLimits {
  app.removeAllContentTypeParsers();
  const bodies = new Bodies({ maxBytes: bounds.maxBodyBytes, idleMs: bounds.bodyIdleMs });
  app.addContentTypeParser('*', (request, _payload, done) => {
    bodies.read(request.raw, request.tenant, request.routeOptions.bodyLimit ?? LIMITS.requestBodyBytes, done);
  });

  const connections = new Connections(app.server, bounds.maxConnectionsOfAddress);
  app.server.maxConnections = bounds.maxConnections;
  // Node regards a connection with an unread request as idle. `Connections` tracks the requests correctly.
  app.server.closeIdleConnections = () => connections.closeIdle();
  app.addHook('onRequest', (request, _reply, done) => {
    connections.requestBegan(request.raw.socket);
    done();
  });
  app.addHook('onResponse', (request, _reply, done) => {
    connections.requestEnded(request.raw.socket);
    done();
  });
  app.addHook('preClose', done => {
    connections.closeIdle();
    done();
  });

  const unread = new UnreadAnswers({
    idleMs: bounds.answerIdleMs,
    maxBytes: bounds.maxAnswerBytes,
    connections: () => connections.open(),
  });
  app.server.on('connection', () => unread.start());
  app.decorate('adopt', (socket: Socket) => {
    connections.adopt(socket);
    unread.start();
  });
  return { bodies, connections, unread };
}

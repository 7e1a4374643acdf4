import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { HostTurns } from '../access/host-turns.ts';
import type { Connections } from '../limits/connections.ts';
import { traceIdOf } from '../request.ts';
import { FastPath, type FastPathOptions } from './fast-path.ts';
import { PlainConnections } from './plain-connections.ts';

export interface ServedBy extends FastPathOptions {
  /** Resolves when the fast path may serve requests. Absent: immediately. */
  readonly started?: Promise<void> | undefined;
  /** Enables `plain-connections.ts`. */
  readonly readsPlainRequests: boolean;
}

/**
 * Serves the requests of `app` with the fast path, or else with the router. Adds `app.fastPath`.
 * A connection has one running request: the next one begins when the last one is answered.
 */
export function serveRequests(app: FastifyInstance, { started, readsPlainRequests, ...options }: ServedBy): void {
  const fastPath = new FastPath(options);
  app.decorate('fastPath', fastPath);
  if (started === undefined) fastPath.open();
  else void started.then(() => fastPath.open());
  const plain = new PlainConnections(app.server, fastPath);
  if (readsPlainRequests) plain.start();

  const [route] = app.server.listeners('request') as Listener[];
  if (route === undefined) throw new TypeError('the router does not listen to the server');
  app.server.off('request', route);
  const serve = serving(route, fastPath, options.addresses);
  app.server.on('request', (request, response) => {
    plain.began(request.socket, response);
    inTurn(options.connections, request, response, () => serve(request, response));
  });
}

type Listener = (request: IncomingMessage, response: ServerResponse) => void;

/** Returns a function that serves a request with the fast path or `route`, and that never throws. */
function serving(route: Listener, fastPath: FastPath, addresses: HostTurns | null): Listener {
  return (request, response) => {
    try {
      addresses?.turn(request);
      if (!fastPath.tryServe(request, response)) route(request, response);
    } catch (error) {
      fastPath.uncaught(error, traceIdOf(request.headers));
      answerFault(response);
    }
  };
}

/**
 * Calls `serve` after the earlier requests on this connection have been answered.
 * Closes the connection if too many requests wait.
 */
function inTurn(
  connections: Connections,
  { socket }: IncomingMessage,
  response: ServerResponse,
  serve: () => void,
): void {
  // Node gives a response its socket when all earlier responses are complete.
  if (response.socket !== null) serve();
  else if (!connections.queue(socket, response, serve)) socket.destroy();
}

/** Answers a bare 500, or destroys the response if its headers were sent. */
function answerFault(response: ServerResponse): void {
  if (response.headersSent) response.destroy();
  else response.writeHead(500, ['Connection', 'close']).end();
}

import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';

/**
 * Closes a connection after a refused upgrade, when the answer has been written.
 * Node has stopped reading such a connection, so it would accept no further request and stay open forever.
 * `asks` is called for each request that asks for an upgrade, before any other work.
 */
export function endRefusedUpgrades(app: FastifyInstance, asks: (request: IncomingMessage) => void): void {
  const asked = new WeakSet<IncomingMessage>();
  app.server.prependListener('upgrade', request => {
    asked.add(request);
    asks(request);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    if (asked.has(request.raw)) reply.header('Connection', 'close');
    done(null, payload);
  });
  app.addHook('onResponse', (request, _reply, done) => {
    if (asked.has(request.raw)) request.raw.socket.destroySoon();
    done();
  });
}

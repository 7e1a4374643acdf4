import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';

/**
 * Ends each connection whose upgrade is answered with anything but an upgrade, when the answer is written: Node has stopped reading it, so it would
 * take no further request and stay open for good. `asks` is called for each request that asks for one, before all else.
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

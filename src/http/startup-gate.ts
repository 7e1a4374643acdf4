import type { FastifyInstance, FastifyReply } from 'fastify';
import { refusal } from './answer.ts';

export interface StartupBounds {
  /** Longest time that a request waits for the start before it is refused. */
  readonly waitMs: number;
  /** Maximum number of waiting requests. Further requests are refused immediately. */
  readonly maxWaiting: number;
}

const USUAL: StartupBounds = { waitMs: 5_000, maxWaiting: 1_000 };
const RETRY_AFTER_SECONDS = 1;

interface Waiting {
  readonly pass: () => void;
  readonly refuse: () => void;
}

/**
 * Delays requests, and upgrades, while a server that already listens is still starting. Before the server has
 * found the instances of an earlier server, its answers may be wrong. Each request waits up to `waitMs`. If
 * the server has not started by then, the request is refused with 503 and `Retry-After`. Routes with
 * `servesWhileStarting` do not wait.
 *
 * The fast path must be closed until `started` resolves.
 */
export function addStartupGate(app: FastifyInstance, started: Promise<void>, bounds: StartupBounds = USUAL): void {
  const waiting = new Set<Waiting>();
  let isStarted = false;
  void started.then(() => {
    isStarted = true;
    for (const { pass } of [...waiting]) pass();
  });
  app.addHook('onRequest', (request, reply, done) => {
    if (isStarted || request.routeOptions.config.servesWhileStarting === true) done();
    else if (waiting.size >= bounds.maxWaiting) refuse(reply);
    else delayRequest(waiting, reply, bounds.waitMs, done);
  });
  // The server stops before it has started.
  app.addHook('preClose', done => {
    for (const each of [...waiting]) each.refuse();
    done();
  });
}

function delayRequest(waiting: Set<Waiting>, reply: FastifyReply, waitMs: number, done: () => void): void {
  const leave = () => {
    clearTimeout(timer);
    reply.raw.off('close', leave);
    waiting.delete(held);
  };
  const held: Waiting = {
    pass: () => {
      leave();
      done();
    },
    refuse: () => {
      leave();
      refuse(reply);
    },
  };
  const timer = setTimeout(held.refuse, waitMs);
  waiting.add(held);
  // The client disconnected.
  reply.raw.once('close', leave);
}

function refuse(reply: FastifyReply): void {
  const { status, body } = refusal(503, 'the server is starting: it does not yet know what an earlier one left');
  // The server does not read the body, so the next request on this connection could not be parsed.
  reply.code(status).header('Retry-After', String(RETRY_AFTER_SECONDS)).header('Connection', 'close').send(body);
}

import type { FastifyReply } from 'fastify';

/** Aborts when the caller goes away before it has its whole answer. */
export function callerSignal(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  const { raw } = reply;
  raw.once('close', () => {
    if (!raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

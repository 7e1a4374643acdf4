// Imported for its additions to the types of routes.
import type {} from '@fastify/websocket';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import { deadlineExceeded, invalidRequest, messageOf } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { Jobs } from '../../jobs/jobs.ts';
import { endsWithin } from '../../lib/deadline.ts';
import { send } from '../../lib/socket-stream.ts';
import { LIVES_WITH_JOB_LOG } from '../lives-with.ts';
import { CLOSE, close, keepAlive, SocketLives } from '../web-socket.ts';

/** Largest frame. The client prints each frame as it arrives. */
const MAX_FRAME_CHARS = 64 * 1024;

/**
 * Adds the WebSocket `/api/jobs/{id}/logs/tail`, which sends the log from its beginning as text frames.
 * Closes the socket with 1000 once the job has ended and its final state is readable. Refuses the handshake
 * for an unknown job (404).
 */
export function addTailRoute(app: FastifyInstance, jobs: Jobs): void {
  const lives = new SocketLives(app);

  for (const url of ['/api/jobs/:id/logs/tail', '/api/jobs/:id/logs/tail/']) {
    app.route<{ Params: { id: string } }>({
      method: 'GET',
      url,
      config: { access: 'read', longLived: true, costly: 'follow', livesWith: LIVES_WITH_JOB_LOG },
      exposeHeadRoute: false,
      preValidation: async request => {
        await jobs.get(request.tenant, request.params.id);
      },
      handler: async (_request, reply) => {
        reply.header('Upgrade', 'websocket').header('Connection', 'Upgrade');
        throw invalidRequest('the log is followed over a WebSocket: the request must ask for an upgrade', {
          number: 426,
        });
      },
      wsHandler: (socket, request) => void serve(socket, request, jobs, lives.begin(request).signal),
    });
  }
}

type TailRequest = FastifyRequest<{ Params: { id: string } }>;

async function serve(socket: WebSocket, request: TailRequest, jobs: Jobs, signal: AbortSignal): Promise<void> {
  // A job may print nothing for any time, so the connection has no idle limit.
  keepAlive(socket, null);
  try {
    // A chunk may end inside a character.
    const decoder = new TextDecoder();
    for await (const chunk of await jobs.follow(request.tenant, request.params.id, signal)) {
      await sendText(socket, decoder.decode(chunk, { stream: true }));
    }
    if (signal.aborted) return;
    await sendText(socket, decoder.decode());
    close(socket, CLOSE.normal);
  } catch (error) {
    if (signal.aborted) return;
    request.failure = `the log broke off: ${messageOf(error)}`;
    close(socket, CLOSE.fault, 'the log broke off');
  }
}

/**
 * Sends a text in frames, each after the previous one was accepted.
 * Terminates the connection if the reader accepts no frame for `LIMITS.tailIdleMs`.
 */
async function sendText(socket: WebSocket, text: string): Promise<void> {
  for (let at = 0; at < text.length; at += MAX_FRAME_CHARS) {
    const isTaken = await endsWithin(send(socket, text.slice(at, at + MAX_FRAME_CHARS)), LIMITS.tailIdleMs);
    if (isTaken) continue;
    socket.terminate();
    throw deadlineExceeded(`its reader took nothing of it for ${LIMITS.tailIdleMs / 1000} s`);
  }
}

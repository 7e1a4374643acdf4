// For what it adds to the types of routes.
import type {} from '@fastify/websocket';
import type { FastifyInstance } from 'fastify';
import type { WebSocket } from 'ws';
import { invalidRequest, messageOf } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { Jobs } from '../jobs/jobs.ts';

const NORMAL = 1000;
const GOING_AWAY = 1001;
const FAULT = 1011;
/** One frame; the client prints each as it comes. */
const MAX_FRAME_CHARS = 64 * 1024;
/** A reader that does not read is waited for from here on. */
const MAX_UNSENT_BYTES = 32 * 1024;
/** Finds out that a reader is gone who never says so. */
const PING_MS = 30_000;

/**
 * WebSocket `/api/jobs/{id}/logs/tail`: the log from its beginning as text frames, closed with 1000 once the job is over and its end can
 * be asked for. An unknown job is a refused handshake (404).
 */
export function addTailRoute(app: FastifyInstance, jobs: Jobs): void {
  const closing = new AbortController();
  app.addHook('preClose', done => {
    closing.abort();
    done();
  });

  for (const url of ['/api/jobs/:id/logs/tail', '/api/jobs/:id/logs/tail/']) {
    app.route<{ Params: { id: string } }>({
      method: 'GET',
      url,
      config: { access: 'read', longLived: true, costly: 'follow' },
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
      wsHandler: (socket, request) => {
        const left = new AbortController();
        const leave = () => left.abort();
        closing.signal.addEventListener('abort', leave, { once: true });
        socket.on('close', leave);
        socket.on('error', leave);
        const pings = keepAlive(socket);
        jobs
          .follow(request.tenant, request.params.id, left.signal)
          .then(chunks => sendAll(socket, chunks, left.signal))
          .then(
            () => socket.close(closing.signal.aborted ? GOING_AWAY : NORMAL),
            (error: unknown) => {
              request.failure = `the log broke off: ${messageOf(error)}`;
              socket.close(FAULT, 'the log broke off');
            },
          )
          .finally(() => {
            clearInterval(pings);
            closing.signal.removeEventListener('abort', leave);
          });
      },
    });
  }
}

async function sendAll(socket: WebSocket, chunks: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  // Chunks may end inside a character.
  const decoder = new TextDecoder();
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    for (let at = 0; at < text.length && !signal.aborted; at += MAX_FRAME_CHARS) {
      await send(socket, text.slice(at, at + MAX_FRAME_CHARS), signal);
    }
  }
  const rest = decoder.decode();
  if (rest !== '' && !signal.aborted) socket.send(rest);
}

/** Sends a frame. When much waits for the reader, this waits until it was taken; a reader that takes nothing for too long is hung up on. */
async function send(socket: WebSocket, frame: string, signal: AbortSignal): Promise<void> {
  let taken: () => void = () => undefined;
  const isTaken = new Promise<void>(resolve => {
    taken = resolve;
  });
  // It is called when the kernel has the frame, and when the connection has ended.
  socket.send(frame, () => taken());
  let before = socket.bufferedAmount;
  if (before <= MAX_UNSENT_BYTES || signal.aborted) return;
  const looking = setInterval(() => {
    if (socket.bufferedAmount === before) socket.terminate();
    before = socket.bufferedAmount;
  }, LIMITS.tailIdleMs);
  signal.addEventListener('abort', taken, { once: true });
  await isTaken;
  signal.removeEventListener('abort', taken);
  clearInterval(looking);
}

function keepAlive(socket: WebSocket): NodeJS.Timeout {
  let isAlive = true;
  socket.on('pong', () => {
    isAlive = true;
  });
  return setInterval(() => {
    if (!isAlive) socket.terminate();
    isAlive = false;
    if (socket.readyState === socket.OPEN) socket.ping();
  }, PING_MS).unref();
}

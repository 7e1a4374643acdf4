import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const signals = new WeakMap<Socket, AbortSignal>();

/**
 * Aborts when the caller goes away: when its connection closes. One signal serves all requests of a connection, which
 * come one after another; making one for each would be a noticeable part of a warm call.
 */
export function callerSignal(socket: Socket): AbortSignal {
  const known = signals.get(socket);
  if (known !== undefined) return known;
  const controller = new AbortController();
  if (socket.destroyed) controller.abort();
  else socket.once('close', () => controller.abort());
  signals.set(socket, controller.signal);
  return controller.signal;
}

/**
 * A controller of one request that aborts when its answer is over: complete, or its caller gone. For requests that hand the
 * signal on to others, who may keep listening for as long as it lives.
 */
export function answerController(answer: ServerResponse): AbortController {
  const controller = new AbortController();
  if (answer.destroyed) controller.abort();
  else answer.once('close', () => controller.abort());
  return controller;
}

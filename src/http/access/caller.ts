import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { CallController, type CallSignal } from '../../lib/call-signal.ts';

const signals = new WeakMap<Socket, CallSignal>();

/**
 * Returns the signal of a connection, which aborts when the connection closes.
 * All requests of a connection share one signal, because they come one after another. One signal for each
 * request would be a noticeable part of a warm call.
 */
export function callerSignal(socket: Socket): CallSignal {
  const known = signals.get(socket);
  if (known !== undefined) return known;
  const controller = new CallController();
  if (socket.destroyed) controller.abort();
  else socket.once('close', () => controller.abort());
  signals.set(socket, controller);
  return controller;
}

/**
 * Creates a controller that aborts when the answer of a request is complete or its client disconnects.
 * Use this where other parts keep the signal and may listen for as long as the signal exists.
 */
export function answerController(answer: ServerResponse): AbortController {
  const controller = new AbortController();
  if (answer.destroyed) controller.abort();
  else answer.once('close', () => controller.abort());
  return controller;
}

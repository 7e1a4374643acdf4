import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
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

/** Longest time between two checks of the clock, which may be set, or stop while the machine sleeps. */
const CHECK_MS = 60_000;

/** The response or connection to watch. */
interface Answer {
  readonly destroyed: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/**
 * Calls `end` once when the admitting token expires, or immediately if it has expired.
 * Does not call `end` after `answer` has closed.
 * Used for answers that stay open as long as the client wants: event streams, followed logs, terminals. Calls
 * have bounds of their own.
 */
export function onTokenEnd({ admittedUntilMs }: FastifyRequest, answer: Answer, end: () => void): void {
  if (admittedUntilMs === null || answer.destroyed) return;
  let timer: NodeJS.Timeout | undefined;
  const check = () => {
    const leftMs = admittedUntilMs - Date.now();
    if (leftMs <= 0) end();
    else timer = setTimeout(check, Math.min(leftMs, CHECK_MS)).unref();
  };
  answer.once('close', () => clearTimeout(timer));
  check();
}

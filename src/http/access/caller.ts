import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Implements the part of `AbortSignal` that calls need.
 * A listener on a real signal costs as much as the rest of a call's bookkeeping.
 * The listeners are in a list: a long-lived `Set` that changes with every call keeps finished calls from
 * garbage collection.
 */
export class CallerSignal {
  aborted = false;
  readonly reason = undefined;
  #listeners: (() => void)[] = [];

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.#listeners.includes(listener)) this.#listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const at = this.#listeners.lastIndexOf(listener);
    if (at < 0) return;
    // Usually it is the only listener.
    if (at === this.#listeners.length - 1) this.#listeners.pop();
    else this.#listeners.splice(at, 1);
  }

  abort(): void {
    this.aborted = true;
    const told = this.#listeners;
    this.#listeners = [];
    for (const listener of told) listener();
  }
}

const signals = new WeakMap<Socket, CallerSignal>();

/**
 * Returns the signal of a connection, which aborts when the connection closes.
 * All requests of a connection share one signal, because they come one after another. One signal for each
 * request would be a noticeable part of a warm call.
 */
export function callerSignal(socket: Socket): CallerSignal {
  const known = signals.get(socket);
  if (known !== undefined) return known;
  const signal = new CallerSignal();
  if (socket.destroyed) signal.abort();
  else socket.once('close', () => signal.abort());
  signals.set(socket, signal);
  return signal;
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

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * The part of `AbortSignal` that is used, for the path of every call: listening to a real one costs as much as the rest of a call's bookkeeping.
 * A list and no `Set`: a set that lives long and changes with every call keeps calls that are over from being collected.
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
    // Nearly always it is the only one.
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
 * Aborts when the caller goes away: when its connection closes. One signal serves all requests of a connection, which
 * come one after another; making one for each would be a noticeable part of a warm call.
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
 * A controller of one request that aborts when its answer is over: complete, or its caller gone. For requests that hand the
 * signal on to others, who may keep listening for as long as it lives.
 */
export function answerController(answer: ServerResponse): AbortController {
  const controller = new AbortController();
  if (answer.destroyed) controller.abort();
  else answer.once('close', () => controller.abort());
  return controller;
}

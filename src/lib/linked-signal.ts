import { setMaxListeners } from 'node:events';

/** Why a signal aborts whose reason nobody asks for. Without one `abort` makes an error, with its stack, which costs more than what is aborted. */
export const OVER = 'over';

/**
 * Calls `action` once when `signal` aborts, at once when it has. The returned function lets go of the signal, which holds `action` until
 * then: a signal may outlive by far what listens to it.
 */
export function onAbort(signal: AbortSignal, action: () => void): () => void {
  if (signal.aborted) {
    action();
    return noop;
  }
  // The listener is called with an event, and `action` with nothing.
  const listener = () => action();
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

function noop(): void {}

/**
 * A controller of a part that lives long, to whose signal any number of things listen that come and go. Node takes more than ten listeners
 * for a leak and says so in the log; who uses `onAbort` lets go.
 */
export function sharedController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

/**
 * A controller that aborts when `parent` does, with its reason. `unlink` lets go of the parent; until then the parent
 * holds it. (`AbortSignal.any` is never let go of on Node 20 while something listens.)
 */
export function linkedTo(parent: AbortSignal): { readonly controller: AbortController; readonly unlink: () => void } {
  const controller = new AbortController();
  return { controller, unlink: onAbort(parent, () => controller.abort(parent.reason)) };
}

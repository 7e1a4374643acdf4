import { setMaxListeners } from 'node:events';

/**
 * The reason for an abort when no reader needs one. Without a reason, `abort` creates an error with its
 * stack, which costs more than the aborted work.
 */
export const OVER = 'over';

/**
 * Calls `action` once when `signal` aborts, or at once when it has aborted. The returned function removes the
 * listener. Until then the signal references `action`, and a signal may outlive its listeners by far.
 */
export function onAbort(signal: AbortSignal, action: () => void): () => void {
  if (signal.aborted) {
    action();
    return noop;
  }
  // Called with an event, whereas `action` gets no argument.
  const listener = () => action();
  signal.addEventListener('abort', listener, { once: true });
  return () => signal.removeEventListener('abort', listener);
}

function noop(): void {}

/**
 * Creates a controller for a long-lived part with any number of listeners. Node reports more than ten
 * listeners as a leak in the log; here `onAbort` removes its listeners.
 */
export function sharedController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

/**
 * Creates a controller that aborts when `parent` does, with its reason. `unlink` removes the listener of
 * `parent`; until then `parent` references the controller. (On Node 20, `AbortSignal.any` is not collected
 * while it has a listener.)
 */
export function linkedTo(parent: AbortSignal): { readonly controller: AbortController; readonly unlink: () => void } {
  const controller = new AbortController();
  return { controller, unlink: onAbort(parent, () => controller.abort(parent.reason)) };
}

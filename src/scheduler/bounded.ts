import { deadlineExceeded } from '../core/error.ts';

/** `promise`, or `deadline_exceeded` with `late` after `timeoutMs`. What it waits for goes on unobserved. */
export function within<T>(promise: Promise<T>, timeoutMs: number, late: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(deadlineExceeded(late)), timeoutMs);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Runs `work` for every item, at most `parallel` at once. `work` does not reject. */
export async function forEachOf<T>(
  items: Iterable<T>,
  parallel: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const lane = async () => {
    for (let next = iterator.next(); !next.done; next = iterator.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: parallel }, lane));
}

/**
 * A controller that aborts when `parent` does, with its reason. `unlink` lets go of the parent; until then the parent
 * holds it. (`AbortSignal.any` is never let go of on Node 20 while something listens.)
 */
export function linkedTo(parent: AbortSignal): { readonly controller: AbortController; readonly unlink: () => void } {
  const controller = new AbortController();
  const follow = () => controller.abort(parent.reason);
  if (parent.aborted) follow();
  else parent.addEventListener('abort', follow, { once: true });
  return { controller, unlink: () => parent.removeEventListener('abort', follow) };
}

/** `work` with a signal that aborts after `timeoutMs`; no timer is left when it ends before that. */
export async function withDeadline<T>(timeoutMs: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeoutMs);
  try {
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
  }
}

import { deadlineExceeded } from '../core/error.ts';

/** `promise`, or `deadline_exceeded` with `late` after `timeoutMs`. What it waits for goes on unobserved. */
export function within<T>(promise: Promise<T>, timeoutMs: number, late: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(deadlineExceeded(late)), timeoutMs);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
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

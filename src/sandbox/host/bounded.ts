import { deadlineExceeded } from '../../core/error.ts';

/**
 * `promise`, or `deadline_exceeded` with `message` after `timeoutMs` or when `signal` aborts. The promise itself goes on: whoever
 * made it cleans up behind it.
 */
export async function bounded<T>(
  promise: Promise<T>,
  timeoutMs: number,
  message: string,
  signal?: AbortSignal,
): Promise<T> {
  if (signal?.aborted) {
    promise.catch(() => undefined);
    throw deadlineExceeded(message);
  }
  let release: () => void = () => undefined;
  const end = new Promise<never>((_resolve, reject) => {
    const fail = () => reject(deadlineExceeded(message));
    const timer = setTimeout(fail, timeoutMs);
    signal?.addEventListener('abort', fail, { once: true });
    release = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', fail);
    };
  });
  try {
    return await Promise.race([promise, end]);
  } finally {
    release();
    promise.catch(() => undefined);
  }
}

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

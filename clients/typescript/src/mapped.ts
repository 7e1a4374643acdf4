import { RookeryError, usageError } from './error.ts';

/**
 * Number of inputs for each concurrent call that are taken before the next result is yielded. Thus one slow
 * call does not stop the others.
 */
const AHEAD = 4;

export interface Mapping {
  readonly concurrency: number;
  readonly returnErrors: boolean;
  readonly signal: AbortSignal | undefined;
}

interface StartedCall<T> {
  isDone: boolean;
  readonly result: Promise<{ readonly value: T } | { readonly error: unknown }>;
}

/**
 * Yields the result of `call` for each input, in their order. The end of the iteration aborts the calls that
 * run and waits for their end.
 */
export function mapped<I, T>(
  inputs: Iterable<I> | AsyncIterable<I>,
  mapping: Mapping,
  call: (input: I, signal: AbortSignal) => Promise<T>,
): AsyncGenerator<T> {
  const { concurrency } = mapping;
  if (Number.isInteger(concurrency) && concurrency >= 1) return results(inputs, mapping, call);
  throw usageError(`concurrency must be a whole number from 1, not ${concurrency}`);
}

async function* results<I, T>(
  inputs: Iterable<I> | AsyncIterable<I>,
  { concurrency, returnErrors, signal }: Mapping,
  call: (input: I, signal: AbortSignal) => Promise<T>,
): AsyncGenerator<T> {
  const ends = new AbortController();
  const abort = () => ends.abort(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  if (signal?.aborted) abort();
  const calls: StartedCall<T>[] = [];
  const running = new Set<Promise<unknown>>();
  const start = (input: I) => {
    const result = call(input, ends.signal).then(
      value => ({ value }),
      (error: unknown) => ({ error }),
    );
    const started = { isDone: false, result };
    const ended = result.then(() => {
      started.isDone = true;
      running.delete(ended);
    });
    running.add(ended);
    calls.push(started);
  };
  const nextResult = async (): Promise<T> => {
    const ended = await (calls.shift() as StartedCall<T>).result;
    if ('value' in ended) return ended.value;
    if (returnErrors && ended.error instanceof RookeryError) return ended.error as T;
    throw ended.error;
  };
  try {
    for await (const input of inputs) {
      for (;;) {
        if (calls[0]?.isDone || calls.length >= concurrency * AHEAD) yield await nextResult();
        else if (running.size >= concurrency) await Promise.race(running);
        else break;
      }
      start(input);
    }
    while (calls.length > 0) yield await nextResult();
  } finally {
    signal?.removeEventListener('abort', abort);
    ends.abort();
    await Promise.all(running);
  }
}

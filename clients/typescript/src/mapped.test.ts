import { setImmediate as immediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Deferred, deferred } from '../../../test/http/deferred.ts';
import { RookeryError } from './error.ts';
import { mapped } from './mapped.ts';

const OPTIONS = { concurrency: 2, returnErrors: false, signal: undefined };

/** Calls that the test ends one by one. */
class Calls {
  readonly started: number[] = [];
  readonly aborted: number[] = [];
  /** The way in which each call ends: it returns the result or throws. */
  readonly #ends = new Map<number, Deferred<() => string>>();
  /** Resolves when the next call starts. */
  #next = deferred();

  readonly call = async (input: number, signal: AbortSignal): Promise<string> => {
    const end = deferred<() => string>();
    this.#ends.set(input, end);
    this.started.push(input);
    this.#next.resolve();
    this.#next = deferred();
    const abort = () => {
      this.aborted.push(input);
      end.resolve(() => {
        throw signal.reason;
      });
    };
    signal.addEventListener('abort', abort);
    return (await end.promise.finally(() => signal.removeEventListener('abort', abort)))();
  };

  async untilStarted(...inputs: number[]): Promise<void> {
    while (!inputs.every(input => this.started.includes(input))) await this.#next.promise;
  }

  end(input: number, error?: Error): void {
    this.#ends.get(input)?.resolve(() => {
      if (error !== undefined) throw error;
      return `result ${input}`;
    });
  }
}

async function* later(inputs: readonly number[]) {
  yield* inputs;
}

test.each([
  ['an array', (inputs: number[]) => inputs],
  ['an asynchronous generator', later],
])('mapped yields the results in the order of the inputs of %s', async (_, made) => {
  const calls = new Calls();
  const results = mapped(made([1, 2, 3]), OPTIONS, calls.call);
  const first = results.next();
  await calls.untilStarted(1, 2);
  calls.end(2);
  await calls.untilStarted(3);
  calls.end(3);
  calls.end(1);
  expect([await first, await results.next(), await results.next(), await results.next()]).toEqual([
    { done: false, value: 'result 1' },
    { done: false, value: 'result 2' },
    { done: false, value: 'result 3' },
    { done: true, value: undefined },
  ]);
});

test('mapped runs at most `concurrency` calls and takes a bounded number of inputs ahead of a slow one', async () => {
  const taken: number[] = [];
  let running = 0;
  let most = 0;
  const slow = deferred();
  const inputs = function* () {
    for (let input = 0; input < 100; input++) {
      taken.push(input);
      // The slow call ends when the largest number of inputs is taken: four for each call, and the next one.
      if (input === 12) slow.resolve();
      yield input;
    }
  };
  const results = mapped(inputs(), { ...OPTIONS, concurrency: 3 }, async input => {
    most = Math.max(most, ++running);
    await (input === 0 ? slow.promise : immediate());
    running--;
    return input;
  });
  expect((await results.next()).value).toBe(0);
  expect(taken.length).toBe(13);
  const rest = [];
  for await (const result of results) rest.push(result);
  expect(rest).toEqual(Array.from({ length: 99 }, (_, at) => at + 1));
  expect(most).toBe(3);
});

test('mapped fails with the first failure in the order of the inputs and aborts the other calls', async () => {
  const calls = new Calls();
  const results = mapped([1, 2, 3], OPTIONS, calls.call);
  const first = results.next();
  await calls.untilStarted(1, 2);
  calls.end(1, new RookeryError('no'));
  await expect(first).rejects.toThrow('no');
  expect(calls.aborted).toEqual([2]);
  expect(calls.started).toEqual([1, 2]);
  expect(await results.next()).toEqual({ done: true, value: undefined });
});

test('mapped yields errors of the service instead of results when the caller wants them', async () => {
  const failed = new RookeryError('no');
  const results = mapped([1, 2], { ...OPTIONS, returnErrors: true }, async input => {
    if (input === 1) throw failed;
    return input;
  });
  expect([(await results.next()).value, (await results.next()).value]).toEqual([failed, 2]);
  const broken = mapped([1], { ...OPTIONS, returnErrors: true }, async () => {
    throw new TypeError('a fault of the program');
  });
  await expect(broken.next()).rejects.toThrow('a fault of the program');
});

test('mapped aborts the calls that run when the caller leaves the loop or aborts', async () => {
  const calls = new Calls();
  for await (const result of mapped([1, 2], OPTIONS, async (input, signal) =>
    input === 1 ? input : calls.call(input, signal),
  )) {
    expect(result).toBe(1);
    break;
  }
  expect(calls.aborted).toEqual(calls.started);

  const aborts = new AbortController();
  const others = new Calls();
  const results = mapped([1, 2], { ...OPTIONS, signal: aborts.signal }, others.call);
  const first = results.next();
  await others.untilStarted(1, 2);
  aborts.abort(new Error('enough'));
  await expect(first).rejects.toThrow('enough');
  expect(others.aborted).toEqual([1, 2]);
});

test.each([0, 1.5, Number.NaN])('mapped refuses a concurrency of %s', concurrency => {
  expect(() => mapped([], { ...OPTIONS, concurrency }, async () => 1)).toThrow('a whole number from 1, not');
});

import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { LogMerge, prefixed } from './log-merge.ts';

const CHUNK = Buffer.alloc(1000, 0x61);

vi.mock('../core/limits.ts', async original => {
  const { LIMITS } = await original<typeof import('../core/limits.ts')>();
  return { LIMITS: { ...LIMITS, waitingLogBytes: 10_000 } };
});

/** Makes an endless log that counts its reads. */
function endless() {
  const asked = { count: 0 };
  const source = (async function* () {
    for (;;) {
      asked.count += 1;
      yield CHUNK;
    }
  })();
  return { asked, source };
}

async function someTurns(): Promise<void> {
  for (let count = 0; count < 20; count++) await turn();
}

test('a source is not read while its last chunk is unread', async () => {
  const over = new AbortController();
  const merge = new LogMerge(over.signal);
  const sources = Array.from({ length: 3 }, endless);
  for (const { source } of sources) merge.add(source);
  await someTurns();
  expect(sources.map(({ asked }) => asked.count)).toEqual([1, 1, 1]);
  const reading = merge.read();
  for (let count = 0; count < 9; count++) expect((await reading.next()).value).toEqual(CHUNK);
  for (const { asked } of sources) expect(asked.count).toBeGreaterThan(2);
  over.abort();
  expect((await reading.next()).done).toBe(true);
});

test('all unread logs share one bound, the largest is cut off, and other readers are unaffected', async () => {
  const over = new AbortController();
  const merges = [8, 3].map(count => {
    const merge = new LogMerge(over.signal);
    for (let each = 0; each < count; each++) merge.add(endless().source);
    return merge.read();
  });
  const [most, least] = merges as [AsyncGenerator<Buffer>, AsyncGenerator<Buffer>];
  await someTurns();
  expect((await least.next()).value).toEqual(CHUNK);
  await expect(most.next()).rejects.toThrow('too many logs are followed and not read');
  for (let count = 0; count < 20; count++) expect((await least.next()).value).toEqual(CHUNK);
  await least.return(undefined);
  // The memory of the ended readers is free again.
  const again = new LogMerge(over.signal);
  for (let each = 0; each < 9; each++) again.add(endless().source);
  await someTurns();
  expect((await again.read().next()).value).toEqual(CHUNK);
  over.abort();
});

test('a reader that leaves ends its sources', async () => {
  const merge = new LogMerge(new AbortController().signal);
  let hasEnded = false;
  merge.add(
    (async function* () {
      try {
        for (;;) yield CHUNK;
      } finally {
        hasEnded = true;
      }
    })(),
  );
  const reading = merge.read();
  await reading.next();
  await reading.return(undefined);
  await vi.waitFor(() => expect(hasEnded).toBe(true));
});

test('each line gets the prefix once, also a line that arrives in pieces', async () => {
  const source = (async function* () {
    for (const chunk of ['a\nb\n', 'long', ' and', ' longer\nc\n', '', 'd\n']) yield Buffer.from(chunk);
  })();
  let text = '';
  for await (const chunk of prefixed(source, '> ')) text += chunk.toString();
  expect(text).toBe('> a\n> b\n> long and longer\n> c\n> d\n');
});

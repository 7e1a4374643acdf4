import { expect, test } from 'vitest';
import { elementsOf } from './json-stream.ts';

async function read(text: string, chunk: number): Promise<unknown[]> {
  const bytes = new TextEncoder().encode(text);
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start(controller) {
      for (let at = 0; at < bytes.length; at += chunk) controller.enqueue(bytes.slice(at, at + chunk));
      controller.close();
    },
  });
  const found: unknown[] = [];
  for await (const batch of elementsOf(body)) found.push(...batch);
  return found;
}

const LIST = [{ a: 'x"]}[{\\' }, { b: { c: [1, { d: '}' }], e: '\\"' } }, {}, { f: 'ü€' }];

test.each([1, 2, 7, 1_000_000])(
  'the reader finds the objects of a list that arrives %i bytes at a time',
  async chunk => {
    expect(await read(JSON.stringify(LIST), chunk)).toEqual(LIST);
    expect(await read(JSON.stringify(LIST, null, 2), chunk)).toEqual(LIST);
    expect(await read('[]', chunk)).toEqual([]);
  },
);

test('a long list in chunks yields the same objects as in one piece', async () => {
  const list = Array.from({ length: 5000 }, (_, at) => ({ at, text: `${'"[{'.repeat(at % 50)}` }));
  expect(await read(JSON.stringify(list), 10_000)).toEqual(list);
});

test('a list that is cut short fails', async () => {
  await expect(read('[{"a":1},{"b"', 3)).rejects.toThrow(SyntaxError);
});

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { BuildRecords } from './build-records.ts';

const [KEPT, GONE] = ['a'.repeat(40), 'b'.repeat(40)] as const;

test('what a build printed stays as long as its layer is kept, however old it is', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'rookery-builds-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const records = new BuildRecords(directory);
  for (const id of [KEPT, GONE]) {
    await records.begin({ id, tenant: 't', tool: 'pip', runtime: 'python3.11' });
    await records.say(id, 'installed\n');
    await records.end(id, null);
  }
  await records.collect(Date.now() + 60_000, async id => id === KEPT);
  expect((await records.list('t', 10)).map(({ id }) => id)).toEqual([KEPT]);
  const request = { tail: null, sinceMs: null, follow: false };
  const printed: Buffer[] = [];
  for await (const chunk of await records.logs('t', KEPT, request, new AbortController().signal)) printed.push(chunk);
  expect(Buffer.concat(printed).toString()).toBe('installed\n');
});

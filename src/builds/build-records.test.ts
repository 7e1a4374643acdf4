import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { BuildRecords } from './build-records.ts';

const [KEPT, GONE] = ['a'.repeat(40), 'b'.repeat(40)] as const;

async function makeRecords(): Promise<{ directory: string; records: BuildRecords }> {
  const directory = await mkdtemp(join(tmpdir(), 'rookery-builds-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  return { directory, records: new BuildRecords(directory) };
}

async function printedBy(records: BuildRecords, id: string, tail: number | null): Promise<string> {
  const request = { tail, sinceMs: null, follow: false };
  const printed: Buffer[] = [];
  for await (const chunk of await records.logs('t', id, request, new AbortController().signal)) printed.push(chunk);
  return Buffer.concat(printed).toString();
}

const BUILD = { id: KEPT, tenant: 't', tool: 'npm', runtime: 'nodejs' };

test('what a build printed stays as long as its layer is kept, however old it is', async () => {
  const { records } = await makeRecords();
  for (const id of [KEPT, GONE]) {
    await records.begin({ id, tenant: 't', tool: 'pip', runtime: 'python3.11' });
    await records.say(id, 'installed\n');
    await records.end(id, null);
  }
  await records.collect(Date.now() + 60_000, async id => id === KEPT);
  expect((await records.list('t', 10)).map(({ id }) => id)).toEqual([KEPT]);
  expect(await printedBy(records, KEPT, null)).toBe('installed\n');
});

test('the last lines of a log are those, also when its first line is empty', async () => {
  const { records } = await makeRecords();
  await records.begin(BUILD);
  await records.say(KEPT, '\none\ntwo\n');
  await records.end(KEPT, null);
  const tails = await Promise.all([0, 1, 2, 3, 100].map(tail => printedBy(records, KEPT, tail)));
  expect(tails).toEqual(['', 'two\n', 'one\ntwo\n', '\none\ntwo\n', '\none\ntwo\n']);
});

test('a record that a power cut has emptied is none, and the others are there', async () => {
  const { directory, records } = await makeRecords();
  await records.begin(BUILD);
  await records.end(KEPT, null);
  await writeFile(join(directory, `${GONE}.json`), '');
  expect((await records.list('t', 10)).map(({ id }) => id)).toEqual([KEPT]);
  await expect(records.get('t', GONE)).rejects.toMatchObject({ code: 'not_found' });
});

test('what is there is ready, whatever its record says', async () => {
  const { records } = await makeRecords();
  await records.ready(BUILD);
  expect(await records.get('t', KEPT)).toMatchObject({ ...BUILD, status: 'READY', reason: '' });
  expect(await printedBy(records, KEPT, null)).toBe('');
  // One that failed, and another one that succeeded when the server died.
  await records.begin(BUILD);
  await records.say(KEPT, 'no network\n');
  await records.end(KEPT, 'the build broke off');
  await records.ready(BUILD);
  const ready = await records.get('t', KEPT);
  expect(ready).toMatchObject({ status: 'READY', reason: '' });
  await records.ready(BUILD);
  expect(await records.get('t', KEPT)).toEqual(ready);
});

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

test('collect keeps the record and log of a build while its layer is kept, whatever their age', async () => {
  const { records } = await makeRecords();
  for (const id of [KEPT, GONE]) {
    await records.addBuild({ id, tenant: 't', tool: 'pip', runtime: 'python3.11' });
    await records.say(id, 'installed\n');
    await records.end(id, null);
  }
  await records.collect(Date.now() + 60_000, async id => id === KEPT);
  expect((await records.list('t', 10)).map(({ id }) => id)).toEqual([KEPT]);
  expect(await printedBy(records, KEPT, null)).toBe('installed\n');
});

test('logs returns the last lines of a log even when its first line is empty', async () => {
  const { records } = await makeRecords();
  await records.addBuild(BUILD);
  await records.say(KEPT, '\none\ntwo\n');
  await records.end(KEPT, null);
  const tails = await Promise.all([0, 1, 2, 3, 100].map(tail => printedBy(records, KEPT, tail)));
  expect(tails).toEqual(['', 'two\n', 'one\ntwo\n', '\none\ntwo\n', '\none\ntwo\n']);
});

test('an empty record file counts as no record, and the other records stay readable', async () => {
  const { directory, records } = await makeRecords();
  await records.addBuild(BUILD);
  await records.end(KEPT, null);
  await writeFile(join(directory, `${GONE}.json`), '');
  expect((await records.list('t', 10)).map(({ id }) => id)).toEqual([KEPT]);
  await expect(records.get('t', GONE)).rejects.toMatchObject({ code: 'not_found' });
});

test('ready marks a build as READY even when its record is missing or says that it failed', async () => {
  const { records } = await makeRecords();
  await records.ready(BUILD);
  expect(await records.get('t', KEPT)).toMatchObject({ ...BUILD, status: 'READY', reason: '' });
  expect(await printedBy(records, KEPT, null)).toBe('');
  // The last record is a failed build; a later build succeeded just before the service died.
  await records.addBuild(BUILD);
  await records.say(KEPT, 'no network\n');
  await records.end(KEPT, 'the build was interrupted');
  await records.ready(BUILD);
  const ready = await records.get('t', KEPT);
  expect(ready).toMatchObject({ status: 'READY', reason: '' });
  await records.ready(BUILD);
  expect(await records.get('t', KEPT)).toEqual(ready);
});

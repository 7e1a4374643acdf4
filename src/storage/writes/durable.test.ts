import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { describeDurableWrites } from '../../../test/suites/durable-writes.ts';
import { notFound } from '../../core/error.ts';
import type { Pool } from '../../core/pool.ts';
import { type Database, openDatabase } from '../database.ts';
import { insertPool, listPools } from '../queries/pools.ts';
import { type DurableWrites, GroupedWrites, openDurableWrites } from './durable.ts';

describeDurableWrites('grouped', async file => {
  const database = await openDatabase(file);
  const writes = await openDurableWrites(database, file);
  return {
    database,
    writes,
    async close() {
      await writes.close();
      await database.destroy();
    },
  };
});

let directory: string;
let file: string;
let database: Database;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-durable-'));
  file = join(directory, 'a.db');
  database = await openDatabase(file);
});
afterEach(async () => {
  await database.destroy();
  await rm(directory, { recursive: true });
});

const pool = (id: string) => ({ spec: { id, group: 'g' }, status: 0, msg: '', readyCount: 0 }) as Pool;
const insert = (writes: DurableWrites, id: string) => writes.write(transaction => insertPool(transaction, pool(id)));
const idsOf = async (db: Database) =>
  (await listPools(db, { id: '', group: '' }, 1000, 0)).pools.map(({ spec }) => spec.id).sort();

/** Creates grouped writes whose flushes the test ends; at most `maxFlushes` run at a time. */
function slowDisk(maxFlushes = 1) {
  const flushes: { done: () => void; fail: (error: Error) => void }[] = [];
  const flush = () =>
    new Promise<void>((done, fail) => {
      flushes.push({ done, fail });
    });
  return { flushes, writes: new GroupedWrites(database, flush, async () => {}, maxFlushes) };
}
const turn = () => new Promise(resolve => setImmediate(resolve));
/** Returns the flush with this index once requested; fails after 10 000 turns. */
async function flushAt<T>(flushes: readonly T[], index: number): Promise<T> {
  for (let turns = 0; turns < 10_000; turns++) {
    const flush = flushes[index];
    if (flush !== undefined) return flush;
    await turn();
  }
  throw new Error(`flush ${index} was never asked for`);
}

test('a flush acknowledges only writes that were on disk before its start', async () => {
  let copies = 0;
  const writes = new GroupedWrites(
    database,
    async () => {
      copies += 1;
      for (const suffix of ['', '-wal']) await copyFile(file + suffix, join(directory, `copy-${copies}.db${suffix}`));
    },
    async () => {},
  );
  await Promise.all(['a', 'b', 'c'].map(id => insert(writes, id)));
  const copy = await openDatabase(join(directory, `copy-${copies}.db`));
  expect(await idsOf(copy)).toEqual(['a', 'b', 'c']);
  await copy.destroy();
});

test('a write resolves after its flush, and writes that wait meanwhile share the next flush', async () => {
  const { flushes, writes } = slowDisk();
  const answered: string[] = [];
  const send = (id: string) => insert(writes, id).then(() => void answered.push(id));
  const first = send('a');
  const flush = await flushAt(flushes, 0);
  const others = ['b', 'c', 'd'].map(send);
  await turn();
  expect(answered).toEqual([]);
  flush.done();
  await first;
  expect(answered).toEqual(['a']);
  (await flushAt(flushes, 1)).done();
  await Promise.all(others);
  expect(answered).toEqual(['a', 'b', 'c', 'd']);
  expect(flushes).toHaveLength(2);
});

test('a write operation that throws writes nothing and leaves the rest of its group intact', async () => {
  const { flushes, writes } = slowDisk();
  const hold = insert(writes, 'first');
  const flush = await flushAt(flushes, 0);
  const results = Promise.allSettled([
    insert(writes, 'a'),
    writes.write(async transaction => {
      await insertPool(transaction, pool('undone'));
      throw notFound('nothing there');
    }),
    insert(writes, 'b'),
  ]);
  flush.done();
  await hold;
  (await flushAt(flushes, 1)).done();
  expect(await results).toMatchObject([
    { status: 'fulfilled', value: true },
    { status: 'rejected', reason: { code: 'not_found', message: 'nothing there' } },
    { status: 'fulfilled', value: true },
  ]);
  expect(await idsOf(database)).toEqual(['a', 'b', 'first']);
});

test('a write operation that throws alone fails with its own error', async () => {
  const writes = await openDurableWrites(database, file);
  await expect(writes.write(() => Promise.reject(notFound('x')))).rejects.toMatchObject({ code: 'not_found' });
  expect(await insert(writes, 'a')).toBe(true);
  await writes.close();
});

test('no write is acknowledged after a failed flush', async () => {
  const { flushes, writes } = slowDisk();
  const first = insert(writes, 'a');
  const flush = await flushAt(flushes, 0);
  const second = insert(writes, 'b');
  const results = Promise.allSettled([first, second]);
  flush.fail(new Error('EIO'));
  for (const result of await results)
    expect(result).toMatchObject({ status: 'rejected', reason: { code: 'internal' } });
  await expect(insert(writes, 'c')).rejects.toMatchObject({ code: 'internal' });
  expect(flushes).toHaveLength(1);
});

test('a write does not wait for the flush of others while fewer than maxFlushes run', async () => {
  const { flushes, writes } = slowDisk(2);
  const answered: string[] = [];
  const send = (id: string) => insert(writes, id).then(() => void answered.push(id));
  const first = send('a');
  await flushAt(flushes, 0);
  const second = send('b');
  const ofSecond = await flushAt(flushes, 1);
  const third = send('c');
  await turn();
  expect(flushes).toHaveLength(2);
  ofSecond.done();
  await second;
  expect(answered).toEqual(['b']);
  (await flushAt(flushes, 2)).done();
  await third;
  expect(answered).toEqual(['b', 'c']);
  flushes[0]?.done();
  await first;
});

test('a flush acknowledges nothing when another flush fails meanwhile', async () => {
  const { flushes, writes } = slowDisk(2);
  const first = insert(writes, 'a');
  const ofFirst = await flushAt(flushes, 0);
  const second = insert(writes, 'b');
  const ofSecond = await flushAt(flushes, 1);
  const results = Promise.allSettled([first, second]);
  ofFirst.fail(new Error('EIO'));
  ofSecond.done();
  for (const result of await results)
    expect(result).toMatchObject({ status: 'rejected', reason: { code: 'internal' } });
});

test('close waits for flushes that began before its own', async () => {
  const { flushes, writes } = slowDisk(2);
  const write = insert(writes, 'a');
  const slow = await flushAt(flushes, 0);
  let isClosed = false;
  const closing = writes.close().then(() => {
    isClosed = true;
  });
  (await flushAt(flushes, 1)).done();
  await turn();
  await turn();
  expect(isClosed).toBe(false);
  slow.done();
  await Promise.all([write, closing]);
});

test('close waits for writes that were accepted before', async () => {
  const { flushes, writes } = slowDisk();
  const write = insert(writes, 'a');
  let isClosed = false;
  const closing = writes.close().then(() => {
    isClosed = true;
  });
  const flush = await flushAt(flushes, 0);
  await turn();
  expect(isClosed).toBe(false);
  flush.done();
  await Promise.all([write, closing]);
});

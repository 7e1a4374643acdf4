import { cp, mkdtemp, readdir, rm, stat, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import type { PoolSpec } from '../core/pool.ts';
import { createPools, removePools } from '../registry/pool-writes.ts';
import { WORKS } from '../works.ts';
import { openDataDir } from './data-dir.ts';
import { openDatabase } from './database.ts';
import { listPools } from './pools.ts';
import { openSqlite } from './sqlite.ts';
import { openStores, type Stores } from './stores.ts';
import { WriteClient } from './write-client.ts';

const PROGRAM = new URL('../../test/registry/write-program.mjs', import.meta.url);
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
const ANY = { id: '', group: '' };

let directory: string;
let file: string;
let stores: Stores;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-stores-'));
  file = join(directory, 'a.db');
  stores = await openStores(file, { works: WORKS, program: PROGRAM });
});
afterEach(async () => {
  await stores.close();
  await rm(directory, { recursive: true });
});

const pool = (id: string) => ({ id, group: 'g' }) as PoolSpec;
const idsOf = async () => (await listPools(stores.database, ANY, 1000, 0)).pools.map(({ spec }) => spec.id).sort();

test('what a write has answered is what the next read finds', async () => {
  for (let round = 0; round < 50; round++) {
    expect(await stores.writes.write(createPools, [pool(`p${round}`)])).toEqual([true]);
    expect(await idsOf()).toHaveLength(round + 1);
  }
});

test('writes at one time are all done, each with its own answer', async () => {
  const ids = Array.from({ length: 200 }, (_, index) => `p${String(index % 100).padStart(3, '0')}`);
  const answers = await Promise.all(ids.map(id => stores.writes.write(createPools, [pool(id)])));
  expect(answers.flat().filter(Boolean)).toHaveLength(100);
  expect(await idsOf()).toEqual(ids.slice(0, 100));
});

test('the error of a work comes through, and nothing of the work is there', async () => {
  await expect(stores.writes.write(removePools, { id: 'a', group: '' })).rejects.toMatchObject({
    ...{ code: 'not_found', number: 4120 },
  });
  expect(stores.writes.problem()).toBeNull();
});

test('a single query that changes something is done elsewhere and answers as usual', async () => {
  await stores.writes.write(createPools, [pool('a'), pool('b')]);
  const { database } = stores;
  const [changed] = await database.updateTable('pools').set({ msg: 'x' }).execute();
  expect(changed?.numUpdatedRows).toBe(2n);
  const gone = await database.deleteFrom('pools').where('id', '=', 'a').returning('id').execute();
  expect(gone).toEqual([{ id: 'a' }]);
  expect(await idsOf()).toEqual(['b']);
});

test('an error of a single query comes through', async () => {
  const broken = sql`insert into nowhere values (1)`.execute(stores.database);
  await expect(broken).rejects.toThrow('no such table: nowhere');
});

test('a transaction of the database is refused with where it belongs', async () => {
  const transaction = stores.database.transaction().execute(async () => undefined);
  await expect(transaction).rejects.toThrow('has to be a work of DurableWrites');
});

test('a work that the thread does not know is refused by its name', async () => {
  const unknown = stores.writes.write(async function dance() {});
  await expect(unknown).rejects.toThrow('does not know the work "dance"');
});

test('close waits for what was ordered, and then everything is refused', async () => {
  const ids = Array.from({ length: 100 }, (_, index) => `p${index}`);
  const writes = ids.map(id => stores.writes.write(createPools, [pool(id)]));
  await stores.close();
  expect((await Promise.all(writes)).flat()).toEqual(ids.map(() => true));
  await expect(stores.writes.write(createPools, [pool('late')])).rejects.toMatchObject({ code: 'internal' });
  const again = await openDatabase(file);
  expect(await again.selectFrom('pools').select('id').execute()).toHaveLength(100);
  await again.destroy();
});

test('when the thread ends unasked, what waits and what comes fails, and the problem is told', async () => {
  const thread = new Worker(PROGRAM, { workerData: file });
  const client = new WriteClient(thread, WORKS);
  await client.write(createPools, [pool('a')]);
  const waiting = Array.from({ length: 20 }, (_, index) => client.write(createPools, [pool(`p${index}`)]));
  const settled = Promise.allSettled(waiting);
  await thread.terminate();
  const lost = (await settled).filter(({ status }) => status === 'rejected');
  expect(lost.length).toBeGreaterThan(0);
  for (const outcome of lost) expect(outcome).toMatchObject({ reason: { code: 'internal' } });
  await expect(client.write(createPools, [pool('b')])).rejects.toMatchObject({
    ...{ code: 'internal', message: expect.stringContaining('has to be started again') },
  });
  expect(client.problem()).toContain('the thread that writes the database has ended');
  await client.close();
});

test('a thread that cannot begin fails its orders with why', async () => {
  const thread = new Worker(PROGRAM, { workerData: join(directory, 'nowhere', 'a.db') });
  const client = new WriteClient(thread, WORKS);
  const write = client.write(createPools, [pool('a')]);
  await expect(write).rejects.toMatchObject({
    ...{ code: 'internal', cause: { message: expect.stringContaining('could not be opened') } },
  });
  await client.close();
});

test('a clean close leaves everything in the database’s own file', async () => {
  await stores.writes.write(createPools, [pool('kept')]);
  expect(await stores.close()).toBe(true);
  expect((await stat(`${file}-wal`).catch(() => ({ size: 0 }))).size).toBe(0);
  stores = await openStores(file, { works: WORKS, program: PROGRAM });
  expect(await idsOf()).toEqual(['kept']);
});

test.each(['a.db', 'a.db-wal'])(
  'a write into %s that was deleted is not acknowledged, nor is any after it',
  async name => {
    await stores.writes.write(createPools, [pool('before')]);
    await unlink(join(directory, name));
    const lost = {
      code: 'internal',
      message: expect.stringContaining('was removed or replaced while the service ran'),
    };
    await expect(stores.writes.write(createPools, [pool('work')])).rejects.toMatchObject(lost);
    await expect(stores.database.deleteFrom('pools').execute()).rejects.toMatchObject(lost);
    expect(stores.writes.problem()).toContain(name);
  },
);

test('writes that are refused fail with the problem, those that wait too, and a close still ends', async () => {
  const waiting = stores.writes.write(createPools, [pool('waiting')]);
  stores.refuseWrites('the directory is gone');
  await expect(waiting).rejects.toThrow('the directory is gone');
  await expect(stores.writes.write(createPools, [pool('later')])).rejects.toThrow('the directory is gone');
  expect(stores.writes.problem()).toBe('the directory is gone');
});

describe('a clean stop that is killed', () => {
  let home: string;
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'rookery-stop-'));
  });
  afterEach(async () => {
    await rm(home, { recursive: true, force: true });
  });

  /** What a kill at this moment would leave: the directory as it is. */
  async function killedAt(step: string): Promise<string> {
    // What SQLite removes with the last connection it removes now: a statement that is not collected would hold it.
    collectGarbage();
    await new Promise(setImmediate);
    const left = join(home, step);
    await cp(join(home, 'data'), left, { recursive: true });
    return left;
  }

  async function startsWith(path: string): Promise<readonly string[]> {
    const dir = await openDataDir(path);
    const again = openSqlite(dir.databaseFile);
    const rows = again.prepare('SELECT id FROM pools ORDER BY id').all() as { id: string }[];
    again.close();
    dir.release();
    return rows.map(({ id }) => id);
  }

  it('at whichever moment: the next start begins, and finds all that was written', async () => {
    const dir = await openDataDir(join(home, 'data'));
    const opened = await openStores(dir.databaseFile, { works: WORKS, program: PROGRAM });
    await dir.begin(() => undefined);
    await opened.writes.write(createPools, [pool('a'), pool('b')]);
    const left = [await killedAt('before')];
    const isWhole = await opened.close(async () => {
      left.push(await killedAt('whole'));
      await dir.end();
      left.push(await killedAt('unmarked'));
    });
    left.push(await killedAt('closed'));
    dir.release(isWhole);
    left.push(await killedAt('released'));
    // The log goes with the last connection, so the mark has to go before that, and not before all is in the file.
    const has = async (path: string) => (await readdir(path)).filter(name => /running$|-wal$/.test(name)).sort();
    expect(await has(join(home, 'whole'))).toEqual(['rookery.db-wal', 'running']);
    expect(await has(join(home, 'unmarked'))).toEqual(['rookery.db-wal']);
    expect(await has(join(home, 'released'))).toEqual([]);
    for (const path of left) expect([path, await startsWith(path)]).toEqual([path, ['a', 'b']]);
  });

  it('keeps its mark while the log holds what the file lacks', async () => {
    const dir = await openDataDir(join(home, 'data'));
    const opened = await openStores(dir.databaseFile, { works: WORKS, program: PROGRAM });
    await dir.begin(() => undefined);
    await opened.writes.write(createPools, [pool('a')]);
    // Who reads in the middle of a transaction keeps the log from being emptied.
    const reader = openSqlite(dir.databaseFile);
    reader.exec('BEGIN');
    reader.prepare('SELECT count(*) FROM pools').get();
    await opened.writes.write(createPools, [pool('b')]);
    let isWhole = false;
    await opened.close(async () => {
      isWhole = true;
    });
    dir.release();
    expect(isWhole).toBe(false);
    expect(await readdir(join(home, 'data'))).toEqual(expect.arrayContaining(['running', 'rookery.db-wal']));
    const left = await killedAt('not-whole');
    reader.close();
    expect(await startsWith(left)).toEqual(['a', 'b']);
  }, 30_000);
});

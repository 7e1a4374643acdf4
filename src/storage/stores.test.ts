import { mkdtemp, rm, stat, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { describeDurableWrites } from '../../test/suites/durable-writes.ts';
import { describeStoredAgents } from '../../test/suites/stored-agents.ts';
import { describeStores } from '../../test/suites/stores.ts';
import type { PoolSpec } from '../core/pool.ts';
import { createPools, removePools } from '../registry/pool-writes.ts';
import { WRITE_OPERATIONS } from '../server/write-operations.ts';
import { openDatabase } from './database.ts';
import { listPools } from './queries/pools.ts';
import { openStores } from './stores.ts';
import type { Stores } from './stores-contract.ts';
import { openDurableWrites } from './writes/durable.ts';
import { WriteClient } from './writes/write-client.ts';

const PROGRAM = new URL('../../test/registry/write-program.mjs', import.meta.url);
const ANY = { id: '', group: '' };

describeDurableWrites(
  'in a thread',
  async file => await openStores({ file }, { operations: WRITE_OPERATIONS, program: PROGRAM }),
);

describeStores('SQLite and its thread', async () => {
  const place = await mkdtemp(join(tmpdir(), 'rookery-stores-'));
  const { database, writes, close } = await openStores(
    { file: join(place, 'a.db') },
    { operations: WRITE_OPERATIONS, program: PROGRAM },
  );
  return { database, writes, close: () => close().finally(() => rm(place, { recursive: true })) };
});

async function openInMemory() {
  const database = await openDatabase(':memory:');
  const writes = await openDurableWrites(database, ':memory:');
  return { database, writes, close: () => writes.close().then(() => database.destroy()) };
}

describeStores('SQLite in memory', openInMemory);
describeStoredAgents('SQLite in memory', 'explain query plan', openInMemory);

describe('stores with a write thread', () => {
  let directory: string;
  let file: string;
  let stores: Stores;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'rookery-stores-'));
    file = join(directory, 'a.db');
    stores = await openStores({ file }, { operations: WRITE_OPERATIONS, program: PROGRAM });
  });
  afterEach(async () => {
    await stores.close();
    await rm(directory, { recursive: true });
  });

  const pool = (id: string) => ({ id, group: 'g' }) as PoolSpec;
  const idsOf = async () => (await listPools(stores.database, ANY, 1000, 0)).pools.map(({ spec }) => spec.id).sort();

  test('the database file shrinks after large deletes when no write follows', async () => {
    const large = (index: number) => ({ id: `p${index}`, group: 'x'.repeat(1_000_000) }) as PoolSpec;
    for (let index = 0; index < 16; index++) await stores.writes.write(createPools, [large(index)]);
    const pagesOf = async () =>
      (await sql<{ page_count: number }>`pragma page_count`.execute(stores.database)).rows[0]?.page_count ?? 0;
    const before = await pagesOf();
    await stores.writes.write(removePools, { id: '', group: 'x'.repeat(1_000_000) });
    await vi.waitFor(async () => expect(await pagesOf()).toBeLessThan(before / 2), { timeout: 20_000 });
  });

  test('a single query that changes records runs in the write thread and returns its usual result', async () => {
    await stores.writes.write(createPools, [pool('a'), pool('b')]);
    const { database } = stores;
    const [changed] = await database.updateTable('pools').set({ msg: 'x' }).execute();
    expect(changed?.numUpdatedRows).toBe(2n);
    const gone = await database.deleteFrom('pools').where('id', '=', 'a').returning('id').execute();
    expect(gone).toEqual([{ id: 'a' }]);
    expect(await idsOf()).toEqual(['b']);
  });

  test('a single query passes its error on', async () => {
    const broken = sql`insert into nowhere values (1)`.execute(stores.database);
    await expect(broken).rejects.toThrow('no such table: nowhere');
  });

  test('a transaction on the database is refused with a hint at write operations', async () => {
    const transaction = stores.database.transaction().execute(async () => undefined);
    await expect(transaction).rejects.toThrow('has to be a write operation of DurableWrites');
  });

  test('write refuses an operation that the thread does not know, and names the operation', async () => {
    const unknown = stores.writes.write(async function dance() {});
    await expect(unknown).rejects.toThrow('does not have the operation "dance"');
  });

  test('close waits for pending writes, and later writes are refused', async () => {
    const ids = Array.from({ length: 100 }, (_, index) => `p${index}`);
    const writes = ids.map(id => stores.writes.write(createPools, [pool(id)]));
    await stores.close();
    expect((await Promise.all(writes)).flat()).toEqual(ids.map(() => true));
    await expect(stores.writes.write(createPools, [pool('late')])).rejects.toMatchObject({ code: 'internal' });
    const again = await openDatabase(file);
    expect(await again.selectFrom('pools').select('id').execute()).toHaveLength(100);
    await again.destroy();
  });

  test('pending and later writes fail when the write thread ends, and the problem is reported', async () => {
    const thread = new Worker(PROGRAM, { workerData: file });
    const client = new WriteClient(thread, WRITE_OPERATIONS);
    await client.write(createPools, [pool('a')]);
    const waiting = Array.from({ length: 20 }, (_, index) => client.write(createPools, [pool(`p${index}`)]));
    const settled = Promise.allSettled(waiting);
    await thread.terminate();
    const lost = (await settled).filter(({ status }) => status === 'rejected');
    expect(lost.length).toBeGreaterThan(0);
    for (const outcome of lost) expect(outcome).toMatchObject({ reason: { code: 'internal' } });
    await expect(client.write(createPools, [pool('b')])).rejects.toMatchObject({
      ...{ code: 'internal', message: expect.stringContaining('restart the service') },
    });
    expect(client.problem()).toContain('the write thread of the database has ended');
    await client.close();
  });

  test('a write thread that cannot open its database fails its orders with the cause', async () => {
    const thread = new Worker(PROGRAM, { workerData: join(directory, 'nowhere', 'a.db') });
    const client = new WriteClient(thread, WRITE_OPERATIONS);
    const write = client.write(createPools, [pool('a')]);
    await expect(write).rejects.toMatchObject({
      ...{ code: 'internal', cause: { message: expect.stringContaining('could not be opened') } },
    });
    await client.close();
  });

  test('a clean close leaves all data in the database file', async () => {
    await stores.writes.write(createPools, [pool('kept')]);
    expect(await stores.close()).toBe(true);
    // The log is empty or removed, depending on when the last connection is collected.
    expect(
      await stat(`${file}-wal`).then(
        log => log.size,
        () => 0,
      ),
    ).toBe(0);
    stores = await openStores({ file }, { operations: WRITE_OPERATIONS, program: PROGRAM });
    expect(await idsOf()).toEqual(['kept']);
  });

  test.each(['a.db', 'a.db-wal'])(
    'a write after the removal of %s is not acknowledged, nor is any later write',
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

  test('refuseWrites fails pending and later writes with the problem, and close still completes', async () => {
    const waiting = stores.writes.write(createPools, [pool('waiting')]);
    stores.refuseWrites('the directory is gone');
    await expect(waiting).rejects.toThrow('the directory is gone');
    await expect(stores.writes.write(createPools, [pool('later')])).rejects.toThrow('the directory is gone');
    expect(stores.writes.problem()).toBe('the directory is gone');
  });
});

import { sql } from 'kysely';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { startPostgres, type TestPostgres } from '../../../test/parts/postgres.ts';
import { describeWith } from '../../../test/probe.ts';
import type { PoolSpec } from '../../core/pool.ts';
import { createPools } from '../../registry/pool-writes.ts';
import { WRITE_OPERATIONS } from '../../server/write-operations.ts';
import type { WriteTransaction } from '../database.ts';
import { listPools } from '../queries/pools.ts';
import { openStores } from '../stores.ts';
import type { Stores } from '../stores-contract.ts';

const PROGRAM = new URL('../../../test/registry/write-program.mjs', import.meta.url);
const AWAY = { code: 'unavailable', retryAfterSeconds: 1 };
const LONG_MS = 60_000;
const SHORT_MS = 1_000;

describeWith(['postgres'], 'stores during PostgreSQL failures', () => {
  let server: TestPostgres;
  let url: string;
  const opened: Stores[] = [];
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.close());
  beforeEach(async () => {
    await server.start();
    url = await server.database();
  });
  afterEach(async () => {
    server.resume();
    await server.start();
    for (const stores of opened.splice(0)) await stores.close();
  });

  const open = async (waitMs: number, poolSize = 4) => {
    // The wait includes the start, and a busy machine may need more time.
    const stores = await vi.waitFor(
      () => openStores({ url, waitMs, poolSize }, { operations: WRITE_OPERATIONS, program: PROGRAM }),
      { timeout: LONG_MS },
    );
    opened.push(stores);
    return stores;
  };
  const pool = (id: string) => ({ id, group: 'g' }) as PoolSpec;
  const create = (stores: Stores, id: string) => stores.writes.write(createPools, [pool(id)]);
  const idsIn = async ({ database }: Stores) =>
    (await listPools(database, { id: '', group: '' }, 1000, 0)).pools.map(({ spec }) => spec.id).sort();
  const ask = async (text: string, at = url) => {
    const client = new pg.Client({ connectionString: at });
    client.on('error', () => undefined);
    await client.connect();
    return (await client.query(text).finally(() => client.end())).rows;
  };

  test.each([
    ['is restarted', () => server.restart()],
    ['is killed and restarted', () => server.kill().then(() => server.start())],
  ])('stores keep acknowledged writes and recover when the server %s', async (_, again) => {
    const stores = await open(LONG_MS);
    const acknowledged: string[] = [];
    let isOver = false;
    const writers = Array.from({ length: 4 }, async (_unused, writer) => {
      for (let n = 0; !isOver; n++) {
        const id = `p-${writer}-${n}`;
        // The answer to a commit may be lost. The error then says that the write may or may not exist.
        await create(stores, id).then(
          () => acknowledged.push(id),
          error => expect(error).toMatchObject({ ...AWAY, message: expect.stringContaining('may be there or not') }),
        );
      }
    });
    await vi.waitFor(() => expect(acknowledged.length).toBeGreaterThan(20));
    await again();
    const before = acknowledged.length;
    await vi.waitFor(() => expect(acknowledged.length).toBeGreaterThan(before + 20));
    isOver = true;
    await Promise.all(writers);
    expect(await idsIn(stores)).toEqual(expect.arrayContaining(acknowledged));
    expect(stores.writes.problem()).toBeNull();
  });

  test('reads and writes fail in bounded time while the server is down, and recover afterwards', async () => {
    const stores = await open(SHORT_MS);
    await server.stop();
    await vi.waitFor(() => expect(stores.writes.problem()).toContain('the database cannot be reached'));
    await expect(create(stores, 'a')).rejects.toMatchObject({ ...AWAY, message: 'the database cannot be reached' });
    await expect(idsIn(stores)).rejects.toMatchObject(AWAY);
    await expect(stores.database.deleteFrom('pools').execute()).rejects.toMatchObject(AWAY);
    await server.start();
    await vi.waitFor(() => expect(stores.writes.problem()).toBeNull());
    expect(await create(stores, 'b')).toEqual([true]);
    expect(await idsIn(stores)).toEqual(['b']);
  });

  test('a query succeeds when the server returns within the wait', async () => {
    const stores = await open(LONG_MS);
    await server.stop();
    const [write, read] = [create(stores, 'a'), idsIn(stores)];
    await server.start();
    expect(await write).toEqual([true]);
    expect(['', 'a']).toContain((await read).join());
  });

  test('reads succeed while an administrator terminates sessions, and writes succeed afterwards', async () => {
    const stores = await open(LONG_MS);
    for (let round = 0; round < 10; round++) {
      const ended = ask(
        'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()',
      );
      const reads = Array.from({ length: 4 }, () => idsIn(stores));
      await ended;
      await Promise.all(reads);
    }
    expect(await create(stores, 'a')).toEqual([true]);
    expect(stores.writes.problem()).toBeNull();
  });

  test('a query on a paused server fails within its limit and succeeds after the resume', async () => {
    const stores = await open(SHORT_MS, 2);
    await create(stores, 'a');
    server.pause();
    const held = Array.from({ length: 2 }, () => idsIn(stores).catch((error: unknown) => error));
    await expect(create(stores, 'b')).rejects.toMatchObject({
      ...AWAY,
      message: expect.stringMatching(/no connection to the database was free|cannot be reached/),
    });
    server.resume();
    await Promise.all(held);
    await vi.waitFor(async () => expect(await create(stores, 'c')).toEqual([true]));
  });

  test('a read finds a connection while writes occupy the pool', async () => {
    const stores = await open(SHORT_MS, 2);
    let release!: () => void;
    const released = new Promise<void>(resolve => {
      release = resolve;
    });
    const hold = (_: WriteTransaction) => released;
    const [first, second] = [stores.writes.write(hold), stores.writes.write(hold)];
    // One of the two connections is reserved for reads.
    expect(await idsIn(stores)).toEqual([]);
    release();
    await Promise.all([first, second]);
  });

  test('a write that waits too long for a lock is refused and writes nothing', async () => {
    const stores = await open(LONG_MS);
    await create(stores, 'a');
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    await holder.query("begin; update pools set msg = 'held'");
    const refused = stores.writes.write(WRITE_OPERATIONS.changePool, 'a', { size: 2 } as never);
    await expect(refused).rejects.toMatchObject({ ...AWAY, message: expect.stringContaining('nothing was written') });
    await holder.query('rollback');
    await holder.end();
    expect(await create(stores, 'b')).toEqual([true]);
  });

  test('a transaction that fails to serialize is retried, with at most three runs', async () => {
    const stores = await open(LONG_MS);
    let runs = 0;
    const unlucky = async (transaction: WriteTransaction, failures: number) => {
      runs += 1;
      const { rows } = await failing(transaction, runs <= failures);
      return rows.length;
    };
    expect(await stores.writes.write(unlucky, 2)).toBe(1);
    expect(runs).toBe(3);
    runs = 0;
    await expect(stores.writes.write(unlucky, 9)).rejects.toMatchObject({
      ...AWAY,
      message: expect.stringContaining('nothing was written'),
    });
    expect(runs).toBe(3);
  });

  test('two deadlocked transactions both complete', async () => {
    const stores = await open(LONG_MS);
    await create(stores, 'a');
    await create(stores, 'b');
    let arrived = 0;
    let bothArrived!: () => void;
    const both = new Promise<void>(resolve => {
      bothArrived = resolve;
    });
    const cross = async (transaction: WriteTransaction, ids: readonly string[]) => {
      for (const id of ids) {
        await transaction
          .updateTable('pools')
          .set(eb => ({ ready_count: eb('ready_count', '+', 1) }))
          .where('id', '=', id)
          .execute();
        arrived += 1;
        if (arrived === 2) bothArrived();
        if (arrived <= 2) await both;
      }
    };
    await Promise.all([stores.writes.write(cross, ['a', 'b']), stores.writes.write(cross, ['b', 'a'])]);
    const rows = await stores.database.selectFrom('pools').select('ready_count').execute();
    expect(rows).toEqual([{ ready_count: 2 }, { ready_count: 2 }]);
  });

  test('writes fail while the server is read-only and succeed once the server accepts writes', async () => {
    const stores = await open(SHORT_MS);
    await create(stores, 'a');
    const name = new URL(url).pathname.slice(1);
    const end = () =>
      ask(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`, server.url);
    await ask(`alter database ${name} set default_transaction_read_only = on`, server.url);
    await end();
    await expect(create(stores, 'b')).rejects.toMatchObject(AWAY);
    await vi.waitFor(() => expect(stores.writes.problem()).toContain('the server only reads'));
    await ask(`alter database ${name} reset default_transaction_read_only`, server.url);
    await vi.waitFor(async () => expect(await create(stores, 'c')).toEqual([true]));
    expect(await idsIn(stores)).toEqual(['a', 'c']);
  });

  test('openStores names the host of an unreachable database without the password', async () => {
    await server.stop();
    const refusal = openStores(
      { url, waitMs: SHORT_MS, poolSize: 2 },
      { operations: WRITE_OPERATIONS, program: PROGRAM },
    );
    await expect(refusal).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining(new URL(url).host),
    });
    await expect(refusal).rejects.not.toThrow(/pass/);
  });

  test('refuseWrites fails pending and later writes and single changes while reads still succeed', async () => {
    const stores = await open(LONG_MS);
    await create(stores, 'a');
    const waiting = create(stores, 'a');
    stores.refuseWrites('the directory is gone');
    await expect(waiting).rejects.toThrow('the directory is gone');
    await expect(create(stores, 'b')).rejects.toThrow('the directory is gone');
    await expect(stores.database.deleteFrom('pools').execute()).rejects.toThrow('the directory is gone');
    expect(stores.writes.problem()).toBe('the directory is gone');
    expect(await idsIn(stores)).toEqual(['a']);
  });
});

async function failing(transaction: WriteTransaction, fails: boolean) {
  return fails
    ? await sql`do $$ begin raise exception 'lost' using errcode = '40001'; end $$`.execute(transaction)
    : await sql`select 1`.execute(transaction);
}

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { PoolSpec } from '../../src/core/pool.ts';
import { createPools, removePools } from '../../src/registry/pool-writes.ts';
import type { Database } from '../../src/storage/database.ts';
import { listPools } from '../../src/storage/queries/pools.ts';
import type { DurableWrites } from '../../src/storage/writes/durable.ts';

export interface OpenWrites {
  /** Database for reads. */
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Closes as a service does: the writes first. */
  close(): Promise<unknown>;
}

const pool = (id: string) => ({ id, group: 'g' }) as PoolSpec;

/**
 * Tests the contract `DurableWrites` with the write operations of the service (`write-operations.ts`). `open`
 * makes a database for a new file name and reopens it for a known one. `isOrdered` is true when writes are
 * done one after another.
 */
export function describeDurableWrites(
  title: string,
  open: (file: string) => Promise<OpenWrites>,
  { isOrdered = true }: { readonly isOrdered?: boolean } = {},
): void {
  describe(`durable writes, ${title}`, () => {
    let directory: string;
    let file: string;
    let opened: OpenWrites;
    let isClosed: boolean;

    beforeEach(async () => {
      directory = await mkdtemp(join(tmpdir(), 'rk-writes-'));
      file = join(directory, 'a.db');
      opened = await open(file);
      isClosed = false;
    });
    afterEach(async () => {
      if (!isClosed) await opened.close();
      await rm(directory, { recursive: true });
    });
    const close = () => {
      isClosed = true;
      return opened.close();
    };
    const create = (...ids: string[]) => opened.writes.write(createPools, ids.map(pool));
    const remove = (id: string) => opened.writes.write(removePools, { id, group: '' });
    const idsIn = async (database: Database) =>
      (await listPools(database, { id: '', group: '' }, 1000, 0)).pools.map(({ spec }) => spec.id).sort();

    test('the next read finds a write whose promise has resolved', async () => {
      for (let round = 0; round < 50; round++) {
        expect(await create(`p${round}`)).toEqual([true]);
        expect(await idsIn(opened.database)).toHaveLength(round + 1);
      }
    });

    test('concurrent writes all complete, and each gets its own result', async () => {
      const ids = Array.from({ length: 200 }, (_, index) => `p${String(index % 100).padStart(3, '0')}`);
      const answers = await Promise.all(ids.map(id => create(id)));
      expect(answers.flat().filter(Boolean)).toHaveLength(100);
      expect(await idsIn(opened.database)).toEqual(ids.slice(0, 100));
    });

    if (isOrdered)
      test('writes of one event-loop turn run in the order of their calls', async () => {
        const answers = Array.from({ length: 100 }, () => [create('a'), remove('a')]).flat();
        expect(await Promise.all(answers)).toEqual(Array.from({ length: 100 }, () => [[true], undefined]).flat());
        expect(await idsIn(opened.database)).toEqual([]);
      });

    test('a failed write operation rejects with its code and number, and changes nothing', async () => {
      await expect(remove('a')).rejects.toMatchObject({
        ...{ code: 'not_found', number: 4120, message: expect.stringContaining('pool does not exist') },
      });
      expect(opened.writes.problem()).toBeNull();
      expect(await create('a')).toEqual([true]);
    });

    test('a write operation that fails in the middle is rolled back, and other queued writes succeed', async () => {
      // The second pool of the operation is invalid.
      const broken = opened.writes.write(createPools, [pool('undone'), null as unknown as PoolSpec]);
      const outcomes = await Promise.allSettled([create('a'), broken, create('b'), remove('nobody'), create('c')]);
      expect(outcomes.map(({ status }) => status)).toEqual([
        ...['fulfilled', 'rejected', 'fulfilled', 'rejected', 'fulfilled'],
      ]);
      expect(await idsIn(opened.database)).toEqual(['a', 'b', 'c']);
    });

    test('close waits for the writes that were accepted', async () => {
      const ids = Array.from({ length: 100 }, (_, index) => `p${index}`);
      const writes = Promise.all(ids.map(id => create(id)));
      await close();
      expect((await writes).flat()).toEqual(ids.map(() => true));
    });

    test('acknowledged writes exist when the database is opened again', async () => {
      await create('a', 'b');
      await remove('a');
      await close();
      const again = await open(file);
      expect(await idsIn(again.database)).toEqual(['b']);
      await again.close();
    });
  });
}

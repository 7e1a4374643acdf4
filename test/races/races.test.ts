import { expect, test } from 'vitest';
import { WRITE_OPERATIONS } from '../../src/server/write-operations.ts';
import { openStores } from '../../src/storage/stores.ts';
import { startPostgres } from '../parts/postgres.ts';
import { describeWith } from '../probe.ts';
import { PAIRS, race } from './races.ts';

const PROGRAM = new URL('../registry/write-program.mjs', import.meta.url);

describeWith(['postgres'], 'concurrent durable writes', () => {
  test('two concurrent writes through two stores on a PostgreSQL server have the result of a serial order', async () => {
    await using server = await startPostgres();
    const url = await server.database();
    const open = () =>
      openStores({ url, waitMs: 30_000, poolSize: 4 }, { operations: WRITE_OPERATIONS, program: PROGRAM });
    const stores = [await open(), await open()] as const;
    try {
      const { first, second, both } = await race(stores, { rounds: PAIRS.length, seed: 20_261_122 });
      expect(first + second + both).toBe(PAIRS.length);
    } finally {
      for (const store of stores) await store.close();
    }
  }, 600_000);
});

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { describeWith } from '../../test/probe.ts';
import type { PoolSpec } from '../core/pool.ts';
import { createPools } from '../registry/pool-writes.ts';
import { WRITE_OPERATIONS } from '../server/write-operations.ts';
import { insertInstance } from './queries/instances.ts';
import { listPools } from './queries/pools.ts';
import { openStores } from './stores.ts';
import type { Stores } from './stores-contract.ts';

const PROGRAM = new URL('../../test/registry/write-program.mjs', import.meta.url);

describeWith(['root', 'namespaces'], 'a database on a full disk', () => {
  let disk: string;
  let stores: Stores;

  beforeEach(async () => {
    disk = mkdtempSync(join(tmpdir(), 'rookery-full-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', disk]);
    stores = await openStores({ file: join(disk, 'a.db') }, { operations: WRITE_OPERATIONS, program: PROGRAM });
  });

  afterEach(async () => {
    await stores.close();
    execFileSync('umount', ['-l', disk]);
    rmSync(disk, { recursive: true });
  });

  const fill = () => {
    try {
      for (let part = 0; ; part++) writeFileSync(join(disk, `filler-${part}`), Buffer.alloc(4096));
    } catch {
      // The disk is full.
    }
  };
  const empty = () => execFileSync('sh', ['-c', 'rm -f filler-*'], { cwd: disk });
  const large = (id: string) => [{ id, group: 'x'.repeat(20_000) } as PoolSpec];
  const full = { code: 'unavailable', message: expect.stringContaining('the disk is full'), retryAfterSeconds: 5 };

  test('every write fails with "the disk is full", alone or with others, while reads still succeed', async () => {
    await stores.writes.write(createPools, large('before'));
    fill();
    await expect(stores.writes.write(createPools, large('alone'))).rejects.toMatchObject(full);
    const together = await Promise.allSettled(['a', 'b', 'c'].map(id => stores.writes.write(createPools, large(id))));
    for (const outcome of together) expect(outcome).toMatchObject({ status: 'rejected', reason: full });
    const longest = storedInstance({ id: 'x'.repeat(50_000) });
    await expect(insertInstance(stores.database, longest)).rejects.toMatchObject(full);
    expect((await listPools(stores.database, { id: '', group: '' }, 10, 0)).pools.map(({ spec }) => spec.id)).toEqual([
      'before',
    ]);
  });

  test('the problem of a full disk is reported, and clears without a write once space is free', async () => {
    fill();
    await expect(stores.writes.write(createPools, large('a'))).rejects.toMatchObject(full);
    expect(stores.writes.problem()).toContain('the disk is full');
    empty();
    await vi.waitFor(() => expect(stores.writes.problem()).toBeNull());
    expect(await stores.writes.write(createPools, large('a'))).toEqual([true]);
  });
});

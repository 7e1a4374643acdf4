import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ownerWarnings, verifyMounts } from './mounts.ts';

const mount = (source: string, ownerUid: number | null = 0, readonly = false) => ({
  source,
  target: '/x',
  readonly,
  ownerUid,
});

test('who may write alone is told when it is not the user, with both uids', () => {
  const mounts = [mount('/a', 0), mount('/b', 1000), mount('/c', 0, true), mount('/d', null)];
  expect(ownerWarnings(mounts, 'worker:staff', 1000, 'image:1')).toEqual([
    '/a belongs to uid 0 and worker has uid 1000 in image:1: writing to it may be denied',
  ]);
  expect(ownerWarnings(mounts, '', 0, 'image:1')).toEqual([
    '/b belongs to uid 1000 and root has uid 0 in image:1: writing to it may be denied',
  ]);
});

test('a source that is not among the mounts of a process was not what the daemon mounted', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-mounts-'));
  try {
    await expect(verifyMounts(process.pid, [mount(directory)])).rejects.toThrow(
      `mount source has changed while it was mounted: ${directory}`,
    );
    // A file system of its own, mounted where it is.
    await verifyMounts(process.pid, [mount('/proc')]);
    // One mount does not stand for two.
    const twice = Array.from({ length: 100 }, () => mount('/proc'));
    await expect(verifyMounts(process.pid, twice)).rejects.toThrow(/has changed/);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test('a process that is gone has nothing that could be compared', async () => {
  await verifyMounts(2 ** 22 + 1, [mount('/tmp')]);
});

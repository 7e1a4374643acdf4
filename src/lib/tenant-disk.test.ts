import { expect, test } from 'vitest';
import { TenantDisk } from './tenant-disk.ts';

const hold = (disk: TenantDisk, tenant: string, item: string, user: string, bytes: number) =>
  disk.acquire(tenant, item, user, async () => bytes);

test('a tenant is refused with a sentence when stored and used bytes together pass the maximum', async () => {
  const disk = new TenantDisk(100);
  disk.countStored(async tenant => (tenant === 'a' ? 60 : 0));
  await hold(disk, 'a', 'layer', 'one', 30);
  await expect(hold(disk, 'a', 'copy', 'two', 11)).rejects.toMatchObject({
    code: 'resource_exhausted',
    message: expect.stringContaining('may take 100 bytes of disk together, packed and unpacked'),
  });
  await hold(disk, 'b', 'copy', 'three', 100);
  await hold(disk, 'a', 'copy', 'two', 10);
});

test('an item counts once for all its users and no more when the last user releases it', async () => {
  const disk = new TenantDisk(100);
  await hold(disk, 'a', 'layer', 'one', 60);
  await hold(disk, 'a', 'layer', 'two', 60);
  disk.release('layer', 'one');
  await expect(hold(disk, 'a', 'other', 'one', 60)).rejects.toThrow('not 120');
  disk.release('layer', 'two');
  await hold(disk, 'a', 'other', 'one', 60);
});

test('the second of two items is refused when they only fit alone', async () => {
  const disk = new TenantDisk(100);
  disk.countStored(async () => {
    await new Promise(resolve => setImmediate(resolve));
    return 10;
  });
  const held = await Promise.allSettled([
    hold(disk, 'a', 'one', 'x', 60),
    hold(disk, 'a', 'two', 'y', 60),
    hold(disk, 'a', 'three', 'z', 30),
    hold(disk, 'b', 'one of b', 'x', 90),
  ]);
  expect(held.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
  disk.release('one', 'x');
  await hold(disk, 'a', 'two', 'y', 60);
});

test('an item that two users hold at one moment counts once', async () => {
  const disk = new TenantDisk(100);
  await Promise.all(['x', 'y'].map(user => hold(disk, 'a', 'layer', user, 60)));
  disk.release('layer', 'x');
  await expect(disk.assertFits('a', 41)).rejects.toThrow('not 101');
  disk.release('layer', 'y');
  await disk.assertFits('a', 100);
});

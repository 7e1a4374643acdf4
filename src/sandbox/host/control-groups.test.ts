import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeGroups, sweepGroups } from './control-groups.ts';

// rmdir refuses a directory with a subdirectory, as it refuses a group that still has a process.
test('removeGroups removes each group once the group is empty, also when controllers share a directory', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-groups-'));
  const [one, two] = ['one', 'two'].map(name => join(directory, name)) as [string, string];
  const inside = join(one, 'inside');
  for (const path of [inside, two]) mkdirSync(path, { recursive: true });
  try {
    const removed = removeGroups({ paths: { memory: one, cpu: one, pids: two }, versions: {} });
    await expect.poll(() => existsSync(two)).toBe(false);
    expect(existsSync(one)).toBe(true);
    rmSync(inside, { recursive: true });
    expect(await removed).toBe(true);
    expect(existsSync(one)).toBe(false);
    // The removal of missing groups succeeds.
    expect(await removeGroups({ paths: { memory: one, pids: two }, versions: {} })).toBe(true);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('sweepGroups removes the groups of dead zygotes, also those with names of earlier versions', async () => {
  const parent = mkdtempSync(join(tmpdir(), 'rookery-groups-'));
  // This pid is above the maximum of the kernel.
  const nobody = 2 ** 22 + 1;
  const left = ['py3.11-0123abcd', 'program3.12-0123abcd'].flatMap(zygote => [
    `${zygote}-${nobody}-1`,
    `${zygote}-0123456789abcdef-${nobody}-2`,
  ]);
  const kept = [
    `py3.11-0123abcd-0123456789abcdef-${process.pid}-1`,
    `program3.12-0123abcd-0123456789abcdef-${process.pid}-1`,
    `rookery-${nobody}-1`,
  ];
  for (const name of [...left, ...kept]) mkdirSync(join(parent, name));
  try {
    await sweepGroups([parent]);
    expect(readdirSync(parent).sort()).toEqual(kept.sort());
  } finally {
    rmSync(parent, { recursive: true });
  }
});

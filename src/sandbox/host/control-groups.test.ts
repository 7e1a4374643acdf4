import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeGroups, sweepGroups } from './control-groups.ts';

// A directory with another one in it is refused as a group is that a process has not left yet.
test('a group is removed as soon as nothing is in it any more, also when one directory is that of all controllers', async () => {
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
    // Again, it is a success.
    expect(await removeGroups({ paths: { memory: one, pids: two }, versions: {} })).toBe(true);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('groups of zygotes that are no more are swept: of interpreters and of programs, with the names of earlier versions too', async () => {
  const parent = mkdtempSync(join(tmpdir(), 'rookery-groups-'));
  // Above what the kernel gives.
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

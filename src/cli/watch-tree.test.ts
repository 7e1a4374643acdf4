import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { watchTree } from './watch-tree.ts';

let root: string;
let seen: Set<string>;
let failures: Error[];
let watching: { close(): void };

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
  mkdirSync(join(root, 'package'));
  mkdirSync(join(root, 'node_modules'));
  writeFileSync(join(root, 'package/a.py'), '1');
  seen = new Set();
  failures = [];
  watching = watchTree(
    root,
    path => path.startsWith('node_modules'),
    path => seen.add(path),
    error => failures.push(error),
  );
});
afterEach(() => {
  watching.close();
  rmSync(root, { recursive: true, force: true });
});

const isSeen = async (path: string) => {
  await expect.poll(() => [...seen], { timeout: 10_000 }).toContain(path);
  seen.clear();
};

test('a file that is renamed over another one is a change, as often as it happens', async () => {
  for (const text of ['2', '3', '4']) {
    writeFileSync(join(root, 'new'), text);
    renameSync(join(root, 'new'), join(root, 'package/a.py'));
    await isSeen('package/a.py');
  }
});

test('directories that come later are watched, with those that they bring, and again under another name', async () => {
  mkdirSync(join(root, 'more/deep'), { recursive: true });
  await isSeen('more');
  await expect
    .poll(() => {
      writeFileSync(join(root, 'more/deep/b.py'), String(Math.random()));
      return [...seen];
    })
    .toContain('more/deep/b.py');
  renameSync(join(root, 'more'), join(root, 'other'));
  await isSeen('other');
  await expect
    .poll(() => {
      writeFileSync(join(root, 'other/deep/b.py'), String(Math.random()));
      return [...seen];
    })
    .toContain('other/deep/b.py');
});

test('what is ignored is not looked into, and a directory that goes is no failure', async () => {
  writeFileSync(join(root, 'node_modules/x'), '1');
  rmSync(join(root, 'package'), { recursive: true });
  await isSeen('package');
  writeFileSync(join(root, 'last'), '1');
  await isSeen('last');
  expect([...seen].filter(path => path.startsWith('node_modules'))).toEqual([]);
  expect(failures).toEqual([]);
});

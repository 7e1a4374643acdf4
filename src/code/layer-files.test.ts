import { mkdir, mkdtemp, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { mountsBelow, moveOver } from './layer-files.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'rookery-layers-'));
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

async function write(...names: readonly string[]): Promise<void> {
  for (const name of names) {
    await mkdir(dirname(join(root, name)), { recursive: true });
    await writeFile(join(root, name), name);
  }
}
const read = (name: string) => readFile(join(root, name), 'utf8');

describe('files of a later layer', () => {
  test('files of the same name are replaced, and directories are joined', async () => {
    await write('one/python/a.py', 'one/python/b.py', 'two/python/b.py', 'two/bin/run');
    await moveOver(join(root, 'two'), join(root, 'one'));
    expect(await read('one/python/a.py')).toBe('one/python/a.py');
    expect(await read('one/python/b.py')).toBe('two/python/b.py');
    expect(await read('one/bin/run')).toBe('two/bin/run');
  });

  test('a file replaces a directory, and a directory replaces a file', async () => {
    await write('one/a/deep', 'one/b', 'two/a', 'two/b/deep');
    await moveOver(join(root, 'two'), join(root, 'one'));
    expect(await read('one/a')).toBe('two/a');
    expect(await read('one/b/deep')).toBe('two/b/deep');
  });

  test('a directory replaces a link, so nothing is written through the link', async () => {
    await write('one/real/kept', 'two/link/new', 'two/real/new');
    await symlink('real', join(root, 'one/link'));
    await symlink('new', join(root, 'two/real/link'));
    await moveOver(join(root, 'two'), join(root, 'one'));
    expect(await read('one/link/new')).toBe('two/link/new');
    expect(await read('one/real/new')).toBe('two/real/new');
    expect(await readlink(join(root, 'one/real/link'))).toBe('new');
  });
});

describe('mounts of layers', () => {
  test('each file and directory at the top is mounted read-only', async () => {
    await write('python/a.py', 'bootstrap');
    const mounts = [...(await mountsBelow(root, '/opt', true))].sort((a, b) => a.target.localeCompare(b.target));
    expect(mounts).toEqual(
      ['bootstrap', 'python'].map(name => ({ source: join(root, name), target: `/opt/${name}`, readonly: true })),
    );
  });

  test('a link at the top and the name of the platform are refused', async () => {
    await symlink('python', join(root, 'lib'));
    await expect(mountsBelow(root, '/opt', true)).rejects.toThrow('"lib" at its top is a link');
    await rm(join(root, 'lib'));
    await write('rookery/tools');
    await expect(mountsBelow(root, '/opt', true)).rejects.toThrow('"rookery" at its top is reserved');
  });

  test('a file at the top is refused where only directories can be mounted', async () => {
    await write('bootstrap');
    await expect(mountsBelow(root, '/opt', false)).rejects.toThrow('"bootstrap" at its top is a file');
  });

  test('more than 32 files and directories at the top are refused', async () => {
    await write(...Array.from({ length: 33 }, (_, index) => `file-${index}`));
    await expect(mountsBelow(root, '/opt', true)).rejects.toThrow('at most 32 are possible');
  });
});

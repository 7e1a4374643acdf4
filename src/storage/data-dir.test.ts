import { mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDataDir } from './data-dir.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-data-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe('data directory', () => {
  it('is made when it is missing, for its owner only', async () => {
    const path = join(directory, 'a', 'b');
    (await openDataDir(path)).release();
    expect((await stat(path)).mode & 0o777).toBe(0o700);
  });

  it('keeps its node id', async () => {
    const first = await openDataDir(directory);
    first.release();
    const second = await openDataDir(directory);
    second.release();
    expect(second.nodeId).toBe(first.nodeId);
  });

  it('belongs to one service at a time', async () => {
    const first = await openDataDir(directory);
    await expect(openDataDir(directory)).rejects.toThrow('belongs to another running service');
    first.release();
    (await openDataDir(directory)).release();
  });

  it('says why it cannot be used', async () => {
    const file = join(directory, 'file');
    await writeFile(file, '');
    await expect(openDataDir(file)).rejects.toThrow(
      `the data directory ${file} is not a directory; choose another with --data-dir`,
    );
    await expect(openDataDir(join(file, 'below'))).rejects.toThrow('cannot be made: ENOTDIR');
    const link = join(directory, 'link');
    await symlink(join(directory, 'nowhere'), link);
    await expect(openDataDir(link)).rejects.toThrow('is not a directory');
  });

  it.runIf(process.platform === 'linux')('is told at once where nothing can be made', async () => {
    await expect(openDataDir('/proc/rookery/data')).rejects.toThrow('cannot be made: ENOENT');
  });
});

import { chmod, chown, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDataDir } from './data-dir.ts';
import { openSqlite } from './sqlite.ts';

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

  it.each([0o755, 0o750, 0o777, 0o701])(
    'that is empty and open to others (%o) is closed to them, and it is said',
    async mode => {
      await chmod(directory, mode);
      const opened = await openDataDir(directory);
      opened.release();
      expect((await stat(directory)).mode & 0o7777).toBe(0o700);
      expect(opened.notices).toEqual([
        `the data directory ${directory} was open to other users (mode ${mode.toString(8)}): it is closed to them now`,
      ]);
      const again = await openDataDir(directory);
      again.release();
      expect(again.notices).toEqual([]);
    },
  );

  it('of an earlier service is closed to others with all that is in it', async () => {
    const files = ['rookery.db', 'rookery.db-wal', 'rookery.db-shm', 'lock'].map(name => join(directory, name));
    for (const file of files) await writeFile(file, '', { mode: 0o644 });
    await chmod(directory, 0o755);
    const opened = await openDataDir(directory);
    expect((await stat(directory)).mode & 0o7777).toBe(0o700);
    for (const file of [...files, join(directory, 'node-id')]) expect((await stat(file)).mode & 0o7777).toBe(0o600);
    opened.release();
  });

  it('has files for its owner only, whatever is usual for this process', async () => {
    const before = process.umask(0);
    try {
      const { databaseFile, release } = await openDataDir(directory);
      const database = openSqlite(databaseFile);
      database.exec('CREATE TABLE t (a)');
      for (const name of await readdir(directory)) {
        expect([name, (await stat(join(directory, name))).mode & 0o7777]).toEqual([name, 0o600]);
      }
      expect(await readdir(directory)).toEqual(
        expect.arrayContaining(['lock', 'node-id', 'rookery.db', 'rookery.db-wal']),
      );
      database.close();
      release();
    } finally {
      process.umask(before);
    }
  });

  it('that is open to others and holds something else is refused, and stays as it is', async () => {
    await writeFile(join(directory, 'letter'), 'mine');
    await chmod(directory, 0o755);
    await expect(openDataDir(directory)).rejects.toThrow('is open to other users (mode 755) and holds what is not');
    expect((await stat(directory)).mode & 0o7777).toBe(0o755);
    expect(await readdir(directory)).toEqual(['letter']);
  });

  it('that everybody may put another in the place of is refused', async () => {
    const open = join(directory, 'open');
    await mkdir(open);
    await chmod(open, 0o777);
    await expect(openDataDir(join(open, 'data'))).rejects.toThrow(`is in ${open}, where everybody may put another`);
    // Where everybody has files of their own only (/tmp) nobody can.
    await chmod(open, 0o1777);
    (await openDataDir(join(open, 'data'))).release();
  });

  it('whose database is a link is refused: it leads to what is not the service’s', async () => {
    await writeFile(join(directory, 'elsewhere'), '', { mode: 0o644 });
    await symlink(join(directory, 'elsewhere'), join(directory, 'rookery.db'));
    await expect(openDataDir(directory)).rejects.toThrow('rookery.db cannot be used: ELOOP');
    expect((await stat(join(directory, 'elsewhere'))).mode & 0o777).toBe(0o644);
  });

  it.runIf(process.getuid?.() === 0)('of another user is refused', async () => {
    await chown(directory, 65534, 65534);
    await expect(openDataDir(directory)).rejects.toThrow('belongs to uid 65534 and this service runs as uid 0');
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

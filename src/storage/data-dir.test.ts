import { spawn } from 'node:child_process';
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { currentBootId } from '../lib/process-name.ts';
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
    await opened.nodeId([]);
    expect((await stat(directory)).mode & 0o7777).toBe(0o700);
    for (const file of [...files, join(directory, 'node-id')]) expect((await stat(file)).mode & 0o7777).toBe(0o600);
    opened.release();
  });

  it('has files for its owner only, whatever is usual for this process', async () => {
    const before = process.umask(0);
    try {
      const dir = await openDataDir(directory);
      await dir.nodeId([]);
      const database = openSqlite(dir.databaseFile);
      database.exec('CREATE TABLE t (a)');
      for (const name of await readdir(directory)) {
        expect([name, (await stat(join(directory, name))).mode & 0o7777]).toEqual([name, 0o600]);
      }
      expect(await readdir(directory)).toEqual(
        expect.arrayContaining(['lock', 'node-id', 'rookery.db', 'rookery.db-wal']),
      );
      database.close();
      dir.release();
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

  it('on a full disk says so when a service begins with it', async () => {
    const dir = await openDataDir(directory);
    await symlink('/dev/full', join(directory, 'running.new'));
    await expect(dir.begin(() => undefined)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: `running of the data directory ${directory} cannot be written: the disk is full; make room, and start the service again`,
    });
    expect(await readdir(directory)).not.toContain('running.new');
    dir.release();
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
    const nodeId = await first.nodeId([]);
    await writeFile(first.databaseFile, 'x');
    first.release();
    const second = await openDataDir(directory);
    expect(await second.nodeId([])).toBe(nodeId);
    expect(await second.nodeId(['another', nodeId])).toBe(nodeId);
    second.release();
  });

  it.each([
    ['missing', null, 'is missing or empty'],
    ['empty', '', 'is missing or empty'],
    ['of another node', 'another', 'says another'],
  ])('does not begin as a new node while its rows are a node’s: node-id is %s', async (_what, text, said) => {
    const dir = await openDataDir(directory);
    if (text !== null) await writeFile(join(directory, 'node-id'), text);
    await expect(dir.nodeId(['mine'])).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringMatching(
        new RegExp(`node-id of the data directory .* ${said}, .* node mine: .*rookery recover`),
      ),
    });
    dir.release();
  });

  it('does not begin empty where there was a database, or where sandboxes are left', async () => {
    await mkdir(join(directory, 'run/instances/one'), { recursive: true });
    await expect(openDataDir(directory)).rejects.toThrow(
      /rookery\.db .* is missing while 1 sandbox of an earlier service is left/,
    );
    await rm(join(directory, 'run'), { recursive: true });
    await writeFile(join(directory, 'node-id'), 'mine');
    await expect(openDataDir(directory)).rejects.toThrow(
      /rookery\.db .* is missing: put a backup back, or let `rookery recover/,
    );
    await writeFile(join(directory, 'rookery.db'), '');
    await expect(openDataDir(directory)).rejects.toThrow(/is missing/);
    await writeFile(join(directory, 'rookery.db'), 'x');
    (await openDataDir(directory)).release();
  });

  it('with the records elsewhere keeps who it is, and is refused where it has records of its own or has forgotten who it is', async () => {
    const elsewhere = { hasDatabase: false };
    const dir = await openDataDir(directory, elsewhere);
    const nodeId = await dir.nodeId([]);
    await dir.begin(() => undefined);
    dir.release(true);
    expect(await readdir(directory)).not.toContain('rookery.db');
    const again = await openDataDir(directory, elsewhere);
    expect(await again.nodeId([])).toBe(nodeId);
    again.release();
    await mkdir(join(directory, 'run/instances/one'), { recursive: true });
    (await openDataDir(directory, elsewhere)).release();
    await rm(join(directory, 'node-id'));
    await expect(openDataDir(directory, elsewhere)).rejects.toThrow(/node-id .* is missing or empty while sandboxes/);
    await rm(join(directory, 'run'), { recursive: true });
    await writeFile(join(directory, 'rookery.db'), 'x');
    await expect(openDataDir(directory, elsewhere)).rejects.toThrow(
      /has a database of its own, rookery\.db, and storage\.url/,
    );
  });

  it('does not begin without the write-ahead log of a service that was killed', async () => {
    await writeFile(join(directory, 'rookery.db'), 'x');
    await writeFile(
      join(directory, 'running'),
      JSON.stringify({ pid: 2 ** 22, startTime: 1, bootId: 'an earlier one' }),
    );
    await expect(openDataDir(directory)).rejects.toThrow(
      /killed and the write-ahead log rookery\.db-wal .* is missing/,
    );
    await writeFile(join(directory, 'rookery.db-wal'), '');
    const dir = await openDataDir(directory);
    await dir.begin(() => undefined);
    dir.release(true);
    // A clean end leaves neither.
    expect((await readdir(directory)).filter(name => name === 'running' || name.endsWith('-wal'))).toEqual([]);
    (await openDataDir(directory)).release();
  });

  it('lets no second service in when the lock was deleted: the process that has it is known', async () => {
    const other = spawn('sleep', ['600']);
    try {
      const stat = await readFile(`/proc/${other.pid}/stat`, 'latin1');
      const startTime = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
      await writeFile(
        join(directory, 'running'),
        JSON.stringify({ pid: other.pid, startTime, bootId: currentBootId() }),
      );
      await expect(openDataDir(directory)).rejects.toThrow('belongs to another running service');
      // Another process by that number is nobody.
      await writeFile(
        join(directory, 'running'),
        JSON.stringify({ pid: other.pid, startTime: 1, bootId: currentBootId() }),
      );
      (await openDataDir(directory)).release();
    } finally {
      other.kill('SIGKILL');
    }
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

  it.runIf(process.platform === 'linux')('is reported at once where nothing can be made', async () => {
    await expect(openDataDir('/proc/rookery/data')).rejects.toThrow('cannot be made: ENOENT');
  });

  it('puts its lock and its mark back when they are deleted while it runs', async () => {
    const dir = await openDataDir(directory);
    await writeFile(dir.databaseFile, 'x');
    await writeFile(`${dir.databaseFile}-wal`, 'x');
    const lost: string[] = [];
    await dir.begin(problem => lost.push(problem));
    await unlink(join(directory, 'lock'));
    await unlink(join(directory, 'running'));
    await vi.waitFor(
      async () => expect(await readdir(directory)).toEqual(expect.arrayContaining(['lock', 'running'])),
      {
        timeout: 10_000,
      },
    );
    await expect(openDataDir(directory)).rejects.toThrow('belongs to another running service');
    expect([lost, dir.problem()]).toEqual([[], null]);
    dir.release(true);
  });

  it.each(['rookery.db', 'rookery.db-wal'])('tells that %s was removed or replaced while it runs, once', async name => {
    const dir = await openDataDir(directory);
    await writeFile(dir.databaseFile, 'x');
    await writeFile(`${dir.databaseFile}-wal`, 'x');
    const lost: string[] = [];
    await dir.begin(problem => lost.push(problem));
    expect(dir.problem()).toBeNull();
    await unlink(join(directory, name));
    await vi.waitFor(() => expect(lost).toHaveLength(1), { timeout: 10_000 });
    expect(lost[0]).toContain(`${name} of the data directory was removed or replaced while the service ran`);
    expect(dir.problem()).toBe(lost[0]);
    dir.release(true);
  });
});

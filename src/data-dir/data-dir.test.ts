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
import { openSqlite } from '../storage/sqlite.ts';
import { openDataDir } from './data-dir.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-data-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe('data directory', () => {
  it('openDataDir creates a missing directory with mode 0700', async () => {
    const path = join(directory, 'a', 'b');
    (await openDataDir(path)).release();
    expect((await stat(path)).mode & 0o777).toBe(0o700);
  });

  it.each([0o755, 0o750, 0o777, 0o701])(
    'openDataDir closes an empty directory of mode %o to other users and reports the change',
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

  it('openDataDir removes the access of other users to the files of an earlier service', async () => {
    const files = ['rookery.db', 'rookery.db-wal', 'rookery.db-shm', 'lock'].map(name => join(directory, name));
    for (const file of files) await writeFile(file, '', { mode: 0o644 });
    await chmod(directory, 0o755);
    const opened = await openDataDir(directory);
    await opened.nodeId([]);
    expect((await stat(directory)).mode & 0o7777).toBe(0o700);
    for (const file of [...files, join(directory, 'node-id')]) expect((await stat(file)).mode & 0o7777).toBe(0o600);
    opened.release();
  });

  it('a data directory contains only files of mode 0600, whatever the umask of the process is', async () => {
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

  it('openDataDir refuses an open directory that holds foreign files, and leaves its mode unchanged', async () => {
    await writeFile(join(directory, 'letter'), 'mine');
    await chmod(directory, 0o755);
    await expect(openDataDir(directory)).rejects.toThrow('is open to other users (mode 755) and holds what is not');
    expect((await stat(directory)).mode & 0o7777).toBe(0o755);
    expect(await readdir(directory)).toEqual(['letter']);
  });

  it('begin reports a full disk when the data directory cannot be written', async () => {
    const dir = await openDataDir(directory);
    await symlink('/dev/full', join(directory, 'running.new'));
    await expect(dir.startWatching(() => undefined)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: `running of the data directory ${directory} cannot be written: the disk is full; make room, and start the service again`,
    });
    expect(await readdir(directory)).not.toContain('running.new');
    dir.release();
  });

  it('openDataDir refuses a directory when all users may write to its parent', async () => {
    const open = join(directory, 'open');
    await mkdir(open);
    await chmod(open, 0o777);
    await expect(openDataDir(join(open, 'data'))).rejects.toThrow(`is in ${open}, in which every user may replace it`);
    // With the sticky bit, as on /tmp, other users cannot replace the directory.
    await chmod(open, 0o1777);
    (await openDataDir(join(open, 'data'))).release();
  });

  it('openDataDir refuses a database file that is a symbolic link', async () => {
    await writeFile(join(directory, 'elsewhere'), '', { mode: 0o644 });
    await symlink(join(directory, 'elsewhere'), join(directory, 'rookery.db'));
    await expect(openDataDir(directory)).rejects.toThrow('rookery.db cannot be used: ELOOP');
    expect((await stat(join(directory, 'elsewhere'))).mode & 0o777).toBe(0o644);
  });

  it.runIf(process.getuid?.() === 0)('openDataDir refuses a directory of another user', async () => {
    await chown(directory, 65534, 65534);
    await expect(openDataDir(directory)).rejects.toThrow('belongs to uid 65534 and this service runs as uid 0');
  });

  it('a data directory keeps its node id when opened again', async () => {
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
  ])('nodeId refuses to create a new node when records name a node and node-id is %s', async (_what, text, said) => {
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

  it('openDataDir refuses an empty start when a database existed or sandboxes remain', async () => {
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

  it('openDataDir without a database keeps the node id, and refuses a local database or a lost node id', async () => {
    const elsewhere = { hasDatabase: false };
    const dir = await openDataDir(directory, elsewhere);
    const nodeId = await dir.nodeId([]);
    await dir.startWatching(() => undefined);
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

  it('openDataDir refuses a directory when the write-ahead log of a killed service is missing', async () => {
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
    await dir.startWatching(() => undefined);
    dir.release(true);
    // A clean stop leaves neither `running` nor the write-ahead log.
    expect((await readdir(directory)).filter(name => name === 'running' || name.endsWith('-wal'))).toEqual([]);
    (await openDataDir(directory)).release();
  });

  it('openDataDir refuses a second service when the lock was deleted but its process still runs', async () => {
    const other = spawn('sleep', ['600']);
    try {
      const stat = await readFile(`/proc/${other.pid}/stat`, 'latin1');
      const startTime = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
      await writeFile(
        join(directory, 'running'),
        JSON.stringify({ pid: other.pid, startTime, bootId: currentBootId() }),
      );
      await expect(openDataDir(directory)).rejects.toThrow('belongs to another running service');
      // A process with the same pid but another start time is not the earlier service.
      await writeFile(
        join(directory, 'running'),
        JSON.stringify({ pid: other.pid, startTime: 1, bootId: currentBootId() }),
      );
      (await openDataDir(directory)).release();
    } finally {
      other.kill('SIGKILL');
    }
  });

  it('openDataDir refuses a directory that another service has open', async () => {
    const first = await openDataDir(directory);
    await expect(openDataDir(directory)).rejects.toThrow('belongs to another running service');
    first.release();
    (await openDataDir(directory)).release();
  });

  it('openDataDir reports why a path cannot be used', async () => {
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

  it.runIf(process.platform === 'linux')('openDataDir fails at once when the directory cannot be created', async () => {
    await expect(openDataDir('/proc/rookery/data')).rejects.toThrow('cannot be made: ENOENT');
  });

  it('a running service restores its lock and its mark when they are deleted', async () => {
    const dir = await openDataDir(directory);
    await writeFile(dir.databaseFile, 'x');
    await writeFile(`${dir.databaseFile}-wal`, 'x');
    const lost: string[] = [];
    await dir.startWatching(problem => lost.push(problem));
    await unlink(join(directory, 'lock'));
    await unlink(join(directory, 'running'));
    await vi.waitFor(
      async () => expect(await readdir(directory)).toEqual(expect.arrayContaining(['lock', 'running'])),
      {
        timeout: 30_000,
      },
    );
    await expect(openDataDir(directory)).rejects.toThrow('belongs to another running service');
    expect([lost, dir.problem()]).toEqual([[], null]);
    dir.release(true);
  });

  it.each(['rookery.db', 'rookery.db-wal'])('a service reports once that %s was removed or replaced', async name => {
    const dir = await openDataDir(directory);
    await writeFile(dir.databaseFile, 'x');
    await writeFile(`${dir.databaseFile}-wal`, 'x');
    const lost: string[] = [];
    await dir.startWatching(problem => lost.push(problem));
    expect(dir.problem()).toBeNull();
    await unlink(join(directory, name));
    await vi.waitFor(() => expect(lost).toHaveLength(1));
    expect(lost[0]).toContain(`${name} of the data directory was removed or replaced while the service ran`);
    expect(dir.problem()).toBe(lost[0]);
    dir.release(true);
  });
});

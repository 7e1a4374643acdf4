import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { insertInstance } from '../storage/queries/instances.ts';
import { listSandboxIds } from '../storage/queries/nodes.ts';
import { backUp } from './backup.ts';
import { openDataDir } from './data-dir.ts';
import { restore } from './restore.ts';

const PACKAGES = ['code/packages/5f0c', 'packages/default/_ray_pkg_1.zip'];

let root: string;
let dataDir: string;
let database: Database;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'rookery-backup-'));
  dataDir = join(root, 'data');
  for (const path of ['code/packages', 'packages/default', 'packages/.uploads']) {
    await mkdir(join(dataDir, path), { recursive: true, mode: 0o700 });
  }
  await writeFile(join(dataDir, 'node-id'), 'mine\n');
  await writeFile(join(dataDir, 'secrets.key'), 'a key');
  await writeFile(join(dataDir, 'packages/.uploads/half'), 'not whole');
  for (const path of PACKAGES) await writeFile(join(dataDir, path), `content of ${path}`);
  database = await openDatabase(join(dataDir, 'rookery.db'));
  await put('known');
});
afterEach(async () => {
  await database.destroy();
  await rm(root, { recursive: true });
});

async function put(id: string): Promise<void> {
  await insertInstance(database, storedInstance({ id, nodeId: 'mine', owner: { kind: 'function', key: 'u' } }));
}
const at = (name: string) => join(root, name);
const make = (target: string, hasKey = true) => backUp({ dataDir, target, version: '1.2.3', hasKey });

async function idsIn(directory: string): Promise<readonly string[]> {
  const copy = await openDatabase(join(directory, 'rookery.db'));
  try {
    return await listSandboxIds(copy);
  } finally {
    await copy.destroy();
  }
}

test.each(['copy', 'copy.tar.gz', 'copy.tgz'])(
  'a backup into %s is restored with all records, packages and keys',
  async name => {
    expect(await make(at(name))).toMatchObject({ files: 5, secrets: 0, hasKey: true });
    await put('later');
    const target = at('deep/new');
    const manifest = await restore(at(name), target);
    expect(manifest).toMatchObject({ version: '1.2.3', nodeId: 'mine' });
    expect(await idsIn(target)).toEqual(['known']);
    expect(await readFile(join(target, 'node-id'), 'utf8')).toBe('mine\n');
    expect(await readFile(join(target, 'secrets.key'), 'utf8')).toBe('a key');
    for (const path of PACKAGES) expect(await readFile(join(target, path), 'utf8')).toBe(`content of ${path}`);
    expect(existsSync(join(target, 'packages/.uploads'))).toBe(false);
    for (const path of ['.', 'rookery.db', 'secrets.key', ...PACKAGES]) {
      expect((await stat(join(target, path))).mode & 0o077).toBe(0);
    }
    const taken = await openDataDir(target);
    expect(await taken.nodeId(['mine'])).toBe('mine');
    taken.release();
    expect((await readdir(root)).sort()).toEqual([name, 'data', 'deep'].sort());
  },
);

test('restore clears the handles of local sandboxes and keeps the handles of pods', async () => {
  const handle = '{"version":1}';
  for (const sandboxType of ['process', 'docker', 'supervisor', 'kubernetes'] as const) {
    const owner = { kind: 'function', key: 'u' } as const;
    expect(
      await insertInstance(database, storedInstance({ id: sandboxType, nodeId: 'mine', owner, sandboxType, handle })),
    ).toBe(true);
  }
  await make(at('copy'));
  await restore(at('copy'), at('new'));
  const copy = await openDatabase(at('new/rookery.db'));
  try {
    const rows = await copy.selectFrom('instances').select('id').where('handle', 'is not', null).execute();
    expect(rows).toEqual([{ id: 'kubernetes' }]);
  } finally {
    await copy.destroy();
  }
});

test('a backup includes the write-ahead log and leaves the log file in place', async () => {
  const log = join(dataDir, 'rookery.db-wal');
  const before = await stat(log);
  expect(before.size).toBeGreaterThan(0);
  await make(at('copy'));
  expect((await stat(log)).ino).toBe(before.ino);
  expect(await idsIn(at('copy'))).toEqual(['known']);
});

test('a backup of a closed database adds no files to the data directory', async () => {
  await sql`pragma wal_checkpoint(truncate)`.execute(database);
  await database.destroy();
  const before = await readdir(dataDir);
  await make(at('copy'));
  expect(await readdir(dataDir)).toEqual(before);
});

test('a backup without the key reports hasKey: false and omits the key file', async () => {
  expect(await make(at('copy'), false)).toMatchObject({ files: 4, hasKey: false });
  expect(existsSync(at('copy/secrets.key'))).toBe(false);
});

test('a failed backup overwrites nothing and leaves no files', async () => {
  await writeFile(at('file'), '');
  await writeFile(at('old.tar.gz'), '');
  await expect(make(at('file'))).rejects.toThrow('is a file: choose a new directory');
  await expect(make(at('old.tar.gz'))).rejects.toThrow('exists already');
  await expect(make(dataDir)).rejects.toThrow('is not empty');
  await expect(make(at('missing/copy'))).rejects.toThrow('cannot be made');
  await database.destroy();
  for (const end of ['-wal', '-shm']) await rm(join(dataDir, `rookery.db${end}`), { force: true });
  await writeFile(join(dataDir, 'rookery.db'), 'this is no database');
  await expect(make(at('copy'))).rejects.toThrow('cannot be copied');
  await rm(join(dataDir, 'rookery.db'));
  await expect(make(at('copy'))).rejects.toThrow('has no rookery.db: choose the one of the service');
  expect((await readdir(root)).sort()).toEqual(['data', 'file', 'old.tar.gz']);
});

test('restore refuses a directory that is not empty and lists its content', async () => {
  await make(at('copy'));
  await mkdir(join(dataDir, 'run/instances/one'), { recursive: true });
  await expect(restore(at('copy'), dataDir)).rejects.toThrow(
    /is not empty: it holds code, node-id, packages, .*files of 1 sandboxes, which may still run\. Move it away/,
  );
});

test('restore refuses the data directory of a running service', async () => {
  await make(at('copy'));
  const { ownName } = await import('../lib/process-name.ts');
  const name = { ...ownName(), pid: 1, startTime: await startTimeOf(1) };
  await writeFile(join(dataDir, 'running'), JSON.stringify(name));
  await expect(restore(at('copy'), dataDir)).rejects.toThrow('a service runs on the data directory');
});

test.each([
  ['a changed file', async (copy: string) => writeFile(join(copy, PACKAGES[0] as string), 'another')],
  ['a missing file', async (copy: string) => rm(join(copy, PACKAGES[1] as string))],
  ['a manifest with a path outside of the backup', leadOut],
  ['a truncated manifest', async (copy: string) => writeFile(join(copy, 'backup.json'), '{"format":1,')],
])('restore refuses a backup with %s and leaves the directory empty', async (_, damage) => {
  await make(at('copy'));
  await damage(at('copy'));
  await expect(restore(at('copy'), at('new'))).rejects.toThrow('the backup is damaged');
  expect(await readdir(at('new')).catch(() => [])).toEqual([]);
});

test('restore refuses a truncated archive', async () => {
  await make(at('copy.tar.gz'));
  const whole = await readFile(at('copy.tar.gz'));
  await writeFile(at('copy.tar.gz'), whole.subarray(0, whole.length / 2));
  await expect(restore(at('copy.tar.gz'), at('new'))).rejects.toThrow('the backup is damaged');
  expect(await readdir(at('new')).catch(() => [])).toEqual([]);
});

test('openDataDir refuses a directory whose restore was interrupted', async () => {
  await make(at('copy'));
  await restore(at('copy'), at('new'));
  await rm(at('new/rookery.db'));
  await expect(openDataDir(at('new'))).rejects.toThrow('is missing');
});

async function leadOut(copy: string): Promise<void> {
  const file = join(copy, 'backup.json');
  const manifest = JSON.parse(await readFile(file, 'utf8'));
  manifest.files.push({ path: 'code/packages/../../../out', bytes: 0, sha256: '' });
  await writeFile(file, JSON.stringify(manifest));
}

async function startTimeOf(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8');
  return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[19]);
}

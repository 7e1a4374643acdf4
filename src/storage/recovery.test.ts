import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { openDataDir } from './data-dir.ts';
import { openDatabase } from './database.ts';
import { insertInstance } from './instances.ts';
import { type Recovery, recover } from './recovery.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-recover-'));
});
afterEach(() => rm(directory, { recursive: true }));

/** A database with one instance of a function, `known`, of the node `mine`; closed as after a clean end. */
async function writeDatabase(): Promise<void> {
  const file = join(directory, 'rookery.db');
  const database = await openDatabase(file);
  await insertInstance(
    database,
    storedInstance({ id: 'known', nodeId: 'mine', owner: { kind: 'function', key: 'u' } }),
  );
  await sql`pragma wal_checkpoint(truncate)`.execute(database);
  await database.destroy();
}

async function look(): Promise<Recovery> {
  let found: Recovery | undefined;
  await recover(directory, async recovery => {
    found = recovery;
  });
  return found as Recovery;
}

const repair = () =>
  recover(directory, async ({ steps }) => {
    for (const { apply } of steps) await apply();
  });

test('nothing is missing in a new directory, and in one that a service has left', async () => {
  expect(await look()).toEqual({ findings: [], steps: [], unknownSandboxes: [] });
  await writeDatabase();
  await writeFile(join(directory, 'node-id'), 'mine\n');
  expect(await look()).toEqual({ findings: [], steps: [], unknownSandboxes: [] });
});

test.each([null, '', 'another'])(
  'node-id is written from what is in the database, but only when it is asked to: %j',
  async text => {
    await writeDatabase();
    if (text !== null) await writeFile(join(directory, 'node-id'), text);
    const { steps } = await look();
    expect(steps.map(step => step.text)).toEqual([
      'write mine into node-id, so that the next service adopts what runs',
    ]);
    expect(await readFile(join(directory, 'node-id'), 'utf8').catch(() => null)).toBe(text);
    await repair();
    expect(await readFile(join(directory, 'node-id'), 'utf8')).toBe('mine\n');
    expect((await look()).steps).toEqual([]);
  },
);

test('beside an older database the sandboxes are named that it does not know', async () => {
  await writeDatabase();
  await writeFile(join(directory, 'node-id'), 'mine');
  for (const id of ['known', 'younger']) await mkdir(join(directory, 'run/instances', id), { recursive: true });
  expect(await look()).toEqual({ findings: [], steps: [], unknownSandboxes: ['younger'] });
});

test('without a database a service begins empty only after it was asked to, and all sandboxes are named before', async () => {
  await writeFile(join(directory, 'node-id'), 'mine');
  await mkdir(join(directory, 'run/instances/agent'), { recursive: true });
  await expect(openDataDir(directory)).rejects.toThrow('is missing');
  const { steps, unknownSandboxes, findings } = await look();
  expect([steps.length, unknownSandboxes]).toEqual([1, ['agent']]);
  expect(findings.join(' ')).toContain('A backup of it');
  expect(await readdir(directory)).not.toContain('rookery.db');
  await repair();
  (await openDataDir(directory)).release();
});

test('a lost write-ahead log is accepted only when it is asked to, however often it was looked at', async () => {
  await writeDatabase();
  await writeFile(join(directory, 'node-id'), 'mine');
  await writeFile(join(directory, 'running'), '{}');
  for (const end of ['-wal', '-shm']) await rm(join(directory, `rookery.db${end}`), { force: true });
  for (let round = 0; round < 2; round++) {
    expect((await look()).steps.map(step => step.text)).toEqual([
      expect.stringContaining('go on with the database as it is'),
    ]);
    await expect(openDataDir(directory)).rejects.toThrow('write-ahead log');
  }
  await repair();
  (await openDataDir(directory)).release();
});

test('a database that lost everything with its log is reported as one that cannot be read', async () => {
  await writeFile(join(directory, 'node-id'), 'mine');
  await writeFile(join(directory, 'running'), '{}');
  await writeFile(join(directory, 'rookery.db'), Buffer.from('SQLite format 3'.padEnd(4096, '?')));
  const { findings, steps } = await look();
  expect(findings.join(' ')).toMatch(/log is missing.* The database cannot be read: .*put a backup back/);
  expect(steps).toHaveLength(1);
});

test('a directory that a service uses is left alone', async () => {
  const used = await openDataDir(directory);
  await expect(look()).rejects.toThrow('belongs to another running service');
  used.release();
});

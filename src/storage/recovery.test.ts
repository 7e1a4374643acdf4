import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { openDataDir } from '../data-dir/data-dir.ts';
import { openDatabase } from './database.ts';
import { insertInstance } from './queries/instances.ts';
import { type Recovery, recover } from './recovery.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-recover-'));
});
afterEach(() => rm(directory, { recursive: true }));

/** Creates a cleanly closed database with the function instance `known` of the node `mine`. */
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

test('recover finds nothing missing in a new directory and in a cleanly closed one', async () => {
  expect(await look()).toEqual({ findings: [], steps: [], unknownSandboxes: [] });
  await writeDatabase();
  await writeFile(join(directory, 'node-id'), 'mine\n');
  expect(await look()).toEqual({ findings: [], steps: [], unknownSandboxes: [] });
});

test.each([null, '', 'another'])(
  'recover writes node-id from the database only when the step is applied: %j',
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

test('recover names the sandboxes that an older database does not contain', async () => {
  await writeDatabase();
  await writeFile(join(directory, 'node-id'), 'mine');
  for (const id of ['known', 'younger']) await mkdir(join(directory, 'run/instances', id), { recursive: true });
  expect(await look()).toEqual({ findings: [], steps: [], unknownSandboxes: ['younger'] });
});

test('recover permits an empty start only when the step is applied, and names all sandboxes before', async () => {
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

test('recover accepts a lost write-ahead log only when the step is applied', async () => {
  await writeDatabase();
  await writeFile(join(directory, 'node-id'), 'mine');
  await writeFile(join(directory, 'running'), '{}');
  for (const end of ['-wal', '-shm']) await rm(join(directory, `rookery.db${end}`), { force: true });
  for (let round = 0; round < 2; round++) {
    expect((await look()).steps.map(step => step.text)).toEqual([
      expect.stringContaining('continue with the database as it is'),
    ]);
    await expect(openDataDir(directory)).rejects.toThrow('write-ahead log');
  }
  await repair();
  (await openDataDir(directory)).release();
});

test('recover reports a database that cannot be read without its write-ahead log', async () => {
  await writeFile(join(directory, 'node-id'), 'mine');
  await writeFile(join(directory, 'running'), '{}');
  await writeFile(join(directory, 'rookery.db'), Buffer.from('SQLite format 3'.padEnd(4096, '?')));
  const { findings, steps } = await look();
  expect(findings.join(' ')).toMatch(/log is missing.* The database cannot be read: .*put a backup back/);
  expect(steps).toHaveLength(1);
});

test('recover refuses a directory that a running service uses', async () => {
  const used = await openDataDir(directory);
  await expect(look()).rejects.toThrow('belongs to another running service');
  used.release();
});

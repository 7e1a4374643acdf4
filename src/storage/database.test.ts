import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openDatabase } from './database.ts';
import { MIGRATIONS } from './migrations/migrations.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-database-'));
});
afterEach(() => rm(directory, { recursive: true }));

test('openDatabase migrates a new file, and opening the file again changes nothing', async () => {
  const file = join(directory, 'a.db');
  for (let round = 0; round < 2; round++) {
    const database = await openDatabase(file);
    const { rows } = await sql<{ name: string }>`SELECT name FROM kysely_migration ORDER BY name`.execute(database);
    expect(rows.map(({ name }) => name)).toEqual(Object.keys(MIGRATIONS));
    await database.destroy();
  }
});

test('migration names sort in the order of their execution', () => {
  const names = Object.keys(MIGRATIONS);
  expect(names).toEqual(names.toSorted());
});

test('openDatabase enables the write-ahead log and foreign keys', async () => {
  const database = await openDatabase(join(directory, 'a.db'));
  const pragma = async (name: string) =>
    Object.values((await sql.raw<Record<string, unknown>>(`PRAGMA ${name}`).execute(database)).rows[0] ?? {})[0];
  expect(await pragma('journal_mode')).toBe('wal');
  expect(await pragma('foreign_keys')).toBe(1);
  await database.destroy();
});

test('an index serves pages of lists, names and idempotency keys', async () => {
  const database = await openDatabase(':memory:');
  const plan = async (query: string) =>
    JSON.stringify((await sql.raw(`EXPLAIN QUERY PLAN ${query}`).execute(database)).rows);
  expect(await plan("SELECT * FROM instances WHERE tenant='t' AND id > 'x' ORDER BY id LIMIT 5")).not.toMatch(
    /SCAN|TEMP B-TREE/,
  );
  expect(await plan("SELECT * FROM instances WHERE tenant='t' AND namespace='n' AND name='a'")).not.toMatch(/SCAN/);
  expect(await plan("SELECT * FROM instances WHERE tenant='t' AND idempotency_key='k'")).not.toMatch(/SCAN/);
  await database.destroy();
});

test('openDatabase refuses a file that is not a database, and names the file', async () => {
  const file = join(directory, 'b.db');
  await writeFile(file, 'not a database at all, not even a little bit of one');
  await expect(openDatabase(file)).rejects.toMatchObject({ code: 'internal', message: expect.stringContaining(file) });
});

test('openDatabase refuses a newer database and names the unknown migration', async () => {
  const file = join(directory, 'a.db');
  const database = await openDatabase(file);
  const insert = sql`INSERT INTO kysely_migration (name, timestamp) VALUES ('9001-tomorrow', '2100')`;
  await insert.execute(database);
  await database.destroy();
  await expect(openDatabase(file)).rejects.toMatchObject({
    code: 'failed_precondition',
    message: expect.stringMatching(/written by a newer version .* does not know 9001-tomorrow; /),
  });
});

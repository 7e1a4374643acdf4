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

test('a new file is brought to the newest migration, and opening it again changes nothing', async () => {
  const file = join(directory, 'a.db');
  for (let round = 0; round < 2; round++) {
    const database = await openDatabase(file);
    const { rows } = await sql<{ name: string }>`SELECT name FROM kysely_migration ORDER BY name`.execute(database);
    expect(rows.map(({ name }) => name)).toEqual(Object.keys(MIGRATIONS));
    await database.destroy();
  }
});

test('migrations are named in the order in which they run', () => {
  const names = Object.keys(MIGRATIONS);
  expect(names).toEqual(names.toSorted());
});

test('the embedded database writes ahead and checks foreign keys', async () => {
  const database = await openDatabase(join(directory, 'a.db'));
  const pragma = async (name: string) =>
    Object.values((await sql.raw<Record<string, unknown>>(`PRAGMA ${name}`).execute(database)).rows[0] ?? {})[0];
  expect(await pragma('journal_mode')).toBe('wal');
  expect(await pragma('foreign_keys')).toBe(1);
  await database.destroy();
});

test('pages of a list and names are found by an index', async () => {
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

test('a file that is no database is refused with its name', async () => {
  const file = join(directory, 'b.db');
  await writeFile(file, 'not a database at all, not even a little bit of one');
  await expect(openDatabase(file)).rejects.toMatchObject({ code: 'internal', message: expect.stringContaining(file) });
});

test('a database of a newer version is refused with the name of the migration that is not known', async () => {
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

import { afterEach, beforeEach, expect, test } from 'vitest';
import { LIMITS } from '../core/limits.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { type DurableWrites, openDurableWrites } from '../storage/writes/durable.ts';
import { ApiKeys } from './api-keys.ts';

let database: Database;
let writes: DurableWrites;
let keys: ApiKeys;

beforeEach(async () => {
  database = await openDatabase(':memory:');
  writes = await openDurableWrites(database, ':memory:');
  keys = new ApiKeys({ database, writes });
});
afterEach(async () => {
  await writes.close();
  await database.destroy();
});

test('a key names its tenant and role, and the database does not have its text', async () => {
  const one = await keys.create('one', 'developer');
  const two = await keys.create('one', 'viewer');
  expect(one.text).toMatch(/^e2b_[0-9a-f]{40}$/);
  expect(await keys.find(one.text)).toEqual({ tenant: 'one', role: 'developer' });
  expect(await keys.find(two.text)).toEqual({ tenant: 'one', role: 'viewer' });
  const stored = await database.selectFrom('api_keys').selectAll().execute();
  expect(JSON.stringify(stored)).not.toContain(one.text.slice(4));
  const changed = one.text.slice(0, -1) + (one.text.endsWith('0') ? '1' : '0');
  for (const wrong of [changed, '', 'x', one.text.toUpperCase(), `${one.text}0`]) {
    expect(await keys.find(wrong)).toBeNull();
  }
});

test('a tenant lists and deletes its own keys only', async () => {
  const { key, text } = await keys.create('one', 'developer');
  expect(await keys.list('one')).toEqual([key]);
  expect(await keys.list('two')).toEqual([]);
  await expect(keys.remove('two', key.id)).rejects.toMatchObject({ code: 'not_found' });
  await keys.remove('one', key.id);
  await expect(keys.remove('one', key.id)).rejects.toMatchObject({ code: 'not_found' });
  expect(await keys.find(text)).toBeNull();
});

test('a tenant has a limited number of keys', async () => {
  const row = { tenant: 'one', role: 'user', created_at_ms: 1 } as const;
  const many = Array.from({ length: LIMITS.apiKeysPerTenant }, (_, n) => ({ ...row, hash: `h${n}`, id: `i${n}` }));
  for (let at = 0; at < many.length; at += 100) {
    await database
      .insertInto('api_keys')
      .values(many.slice(at, at + 100))
      .execute();
  }
  await expect(keys.create('one', 'user')).rejects.toMatchObject({ code: 'resource_exhausted' });
  await keys.create('two', 'user');
});

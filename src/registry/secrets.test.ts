import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { LIMITS } from '../core/limits.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { insertInstance } from '../storage/queries/instances.ts';
import { type DurableWrites, openDurableWrites } from '../storage/writes/durable.ts';
import { Secrets, type SecretsOptions } from './secrets.ts';

const VALUE = 'hunter2-is-no-password';
const newKey = () => new Uint8Array(randomBytes(32));
const KEY = newKey();

let directory: string;
let database: Database;
let writes: DurableWrites;
const warnings: string[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-secrets-'));
  database = await openDatabase(':memory:');
  writes = await openDurableWrites(database, ':memory:');
  warnings.length = 0;
});
afterEach(async () => {
  await writes.close();
  await database.destroy();
  await rm(directory, { recursive: true, force: true });
});

async function secretsWith(change: Partial<SecretsOptions> = {}): Promise<Secrets> {
  const secrets = new Secrets({
    ...{ database, writes, keys: [KEY], ownKeyFile: null, allowUnreadable: false },
    log: { info: () => undefined, warn: (_fields, text) => void warnings.push(text) },
    ...change,
  });
  await secrets.start();
  return secrets;
}
const readBy = async (secrets: Secrets, name: string, tenant = 't') =>
  (await secrets.valuesOf(tenant, [name])).get(name);
const rows = () => database.selectFrom('secrets').selectAll().execute();

describe('a secret', () => {
  test('a secret is given only to a starting sandbox and is stored encrypted', async () => {
    const secrets = await secretsWith();
    await secrets.put('t', 'db-password', VALUE);
    expect(JSON.stringify(await secrets.list('t'))).not.toContain(VALUE);
    expect(await secrets.list('t')).toMatchObject([{ name: 'db-password', isReadable: true }]);
    const [row] = await rows();
    expect(Buffer.from(row?.sealed ?? []).toString('latin1')).not.toContain(VALUE);
    expect(await readBy(secrets, 'db-password')).toBe(VALUE);
  });

  test('a secret is invisible to other tenants', async () => {
    const secrets = await secretsWith();
    await secrets.put('t', 'a', VALUE);
    expect(await secrets.list('other')).toEqual([]);
    await expect(secrets.valuesOf('other', ['a'])).rejects.toThrow('secret does not exist: a');
    await expect(secrets.remove('other', 'a')).rejects.toMatchObject({ code: 'not_found' });
  });

  test('a secret with a new value keeps its creation time', async () => {
    const secrets = await secretsWith();
    const first = await secrets.put('t', 'a', 'one');
    const second = await secrets.put('t', 'a', 'two');
    expect(second.createdAtMs).toBe(first.createdAtMs);
    expect(await readBy(secrets, 'a')).toBe('two');
  });

  test('a secret that is written twice in one moment, or after the clock went back, is answered as it is listed', async () => {
    const secrets = await secretsWith();
    const nowMs = Date.now();
    const clock = vi.spyOn(Date, 'now');
    try {
      for (const atMs of [nowMs, nowMs, nowMs - 60_000]) {
        clock.mockReturnValue(atMs);
        expect([await secrets.put('t', 'a', VALUE)]).toEqual(await secrets.list('t'));
      }
    } finally {
      clock.mockRestore();
    }
  });

  test.each(['', '.a', '-a', 'a/b', 'a b', 'ä', 'x'.repeat(129)])('a secret cannot have the name %j', async name => {
    await expect((await secretsWith()).put('t', name, VALUE)).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test.each(['line 1\nline 2', '$HOME %s "\'`', 'ä€😀', 'x'.repeat(LIMITS.secretValueBytes)])(
    'a secret is read as it was written: %#',
    async value => {
      const secrets = await secretsWith();
      await secrets.put('t', 'a', value);
      expect(await readBy(secrets, 'a')).toBe(value);
    },
  );

  test('the known values of a tenant are the current ones and earlier ones that were read', async () => {
    const secrets = await secretsWith();
    expect([...(await secrets.knownValues('t'))]).toEqual([]);
    await secrets.put('t', 'a', 'never read');
    await secrets.put('t', 'a', 'one');
    await secrets.put('other', 'a', VALUE);
    expect([...(await secrets.knownValues('t'))]).toEqual(['one']);
    await secrets.put('t', 'a', 'two');
    expect([...(await secrets.knownValues('t'))].toSorted()).toEqual(['one', 'two']);
    await secrets.remove('t', 'a');
    expect([...(await secrets.knownValues('t'))].toSorted()).toEqual(['one', 'two']);
  });

  test('a missing secret is named', async () => {
    const secrets = await secretsWith();
    await secrets.put('t', 'a', VALUE);
    await expect(secrets.valuesOf('t', ['a', 'b'])).rejects.toThrow('secret does not exist: b');
    await expect(secrets.check('t', ['a', 'b'])).rejects.toThrow('secret does not exist: b');
  });

  test.each([
    ['another name', { name: 'b' }],
    ['another tenant', { tenant: 'other' }],
  ])('a secret is bound to its place: a record that was moved under %s cannot be read', async (_, change) => {
    const secrets = await secretsWith();
    await secrets.put('t', 'a', VALUE);
    await database.updateTable('secrets').set(change).execute();
    const { tenant, name } = { tenant: 't', name: 'a', ...change };
    await expect(secrets.valuesOf(tenant, [name])).rejects.toThrow(`secret cannot be read: ${name}`);
  });

  test('a secret that cannot be decrypted keeps its older key and is logged when a newer key is added', async () => {
    const newest = newKey();
    const old = await secretsWith();
    await old.put('t', 'broken', VALUE);
    await old.put('t', 'whole', VALUE);
    await database.updateTable('secrets').set({ name: 'moved' }).where('name', '=', 'broken').execute();
    const secrets = await secretsWith({ keys: [newest, KEY] });
    await vi.waitFor(() => expect(warnings).toEqual(['secrets cannot be decrypted; they keep their older key']));
    const [moved, whole] = (await rows()).sort((a, b) => (a.name < b.name ? -1 : 1));
    expect(moved?.key_id).not.toBe(whole?.key_id);
    expect(await readBy(secrets, 'whole')).toBe(VALUE);
  });

  test('a secret with references is kept, and the error names them, but not those of a similar name', async () => {
    const secrets = await secretsWith();
    for (const name of ['a_b', 'axb', 'A_B']) await secrets.put('t', name, VALUE);
    const spec = JSON.stringify({ env: { X: { secret: 'a_b' }, Y: '{"secret":"axb"}' } });
    const agent = { namespace: 'n', name: 'agent', idempotency: undefined };
    await insertInstance(database, storedInstance({ tenant: 't', spec }), agent);
    await expect(secrets.remove('t', 'a_b')).rejects.toThrow('secret a_b is in use: agent n/agent refers to it');
    await secrets.remove('t', 'axb');
    await secrets.remove('t', 'A_B');
    expect((await secrets.list('t')).map(({ name }) => name)).toEqual(['a_b']);
  });

  test('a tenant has a limited number of secrets, and can change existing ones at the limit', async () => {
    const secrets = await secretsWith();
    await secrets.put('t', 'a', VALUE);
    const [row] = await rows();
    if (row === undefined) throw new Error('nothing was written');
    const more = Array.from({ length: LIMITS.secretsPerTenant - 1 }, (_, n) => ({ ...row, name: `s${n}` }));
    for (let at = 0; at < more.length; at += 100) {
      await database
        .insertInto('secrets')
        .values(more.slice(at, at + 100))
        .execute();
    }
    await expect(secrets.put('t', 'one-more', VALUE)).rejects.toMatchObject({ code: 'resource_exhausted' });
    await secrets.put('t', 'a', 'other');
    await secrets.put('u', 'one-more', VALUE);
  });
});

describe('the key of secrets', () => {
  test('the key is made with the first secret, readable by its owner only, and remains after a restart', async () => {
    const ownKeyFile = join(directory, 'secrets.key');
    const own = { keys: null, ownKeyFile };
    const first = await secretsWith(own);
    await expect(stat(ownKeyFile)).rejects.toThrow('ENOENT');
    await Promise.all(['a', 'b', 'c'].map(name => first.put('t', name, VALUE)));
    expect((await stat(ownKeyFile)).mode & 0o777).toBe(0o600);
    expect(await readBy(await secretsWith(own), 'c')).toBe(VALUE);
  });

  test('a different key fails the start, and the error names the missing key and the place for it', async () => {
    await (await secretsWith()).put('t', 'a', VALUE);
    const [row] = await rows();
    const start = secretsWith({ keys: [newKey()] });
    await expect(start).rejects.toMatchObject({ code: 'failed_precondition' });
    await expect(start).rejects.toThrow(`1 with the key ${row?.key_id}`);
    await expect(start).rejects.toThrow('secrets.keyFile');
    const ownKeyFile = join(directory, 'gone');
    const lacksAny = secretsWith({ keys: null, ownKeyFile });
    await expect(lacksAny).rejects.toThrow(`has no key; put it back at ${ownKeyFile}`);
  });

  test('a key in the settings that cannot decrypt the stored secrets fails the start, and the error names the place for the old key', async () => {
    const ownKeyFile = join(directory, 'secrets.key');
    await (await secretsWith({ keys: null, ownKeyFile })).put('t', 'a', VALUE);
    const named = newKey();
    const start = secretsWith({ keys: [named], ownKeyFile });
    await expect(start).rejects.toThrow(`put it (one that the service made for itself is at ${ownKeyFile}) on a line`);
    await expect(start).rejects.not.toThrow('put it back');
    const own = Buffer.from(await readFile(ownKeyFile, 'utf8'), 'base64');
    await secretsWith({ keys: [named, new Uint8Array(own)], ownKeyFile });
    expect(await readBy(await secretsWith({ keys: [named], ownKeyFile }), 'a')).toBe(VALUE);
  });

  test('a service with a lost key starts if allowed to, and the secret can be set again or deleted', async () => {
    for (const name of ['a', 'b']) await (await secretsWith()).put('t', name, VALUE);
    const secrets = await secretsWith({ keys: [newKey()], allowUnreadable: true });
    expect(warnings).toHaveLength(1);
    expect(await secrets.list('t')).toMatchObject([{ isReadable: false }, { isReadable: false }]);
    await expect(secrets.valuesOf('t', ['a'])).rejects.toThrow('secret cannot be read: a');
    await secrets.put('t', 'a', 'new');
    await secrets.remove('t', 'b');
    expect(await readBy(secrets, 'a')).toBe('new');
  });

  test('the start encrypts all secrets with a new key that precedes the old one', async () => {
    for (let n = 0; n < 5; n++) await (await secretsWith()).put('t', `s${n}`, `${VALUE} ${n}`);
    const key = newKey();
    await secretsWith({ keys: [key, KEY] });
    const alone = await secretsWith({ keys: [key] });
    expect(await readBy(alone, 's4')).toBe(`${VALUE} 4`);
  });

  test('a second key only decrypts', async () => {
    await (await secretsWith()).put('t', 'a', VALUE);
    const key = newKey();
    const both = await secretsWith({ keys: [KEY, key] });
    await both.put('t', 'b', VALUE);
    expect(await readBy(await secretsWith(), 'b')).toBe(VALUE);
  });

  test('a service without a key warns at the start, and a write of a secret fails with the reason', async () => {
    const secrets = await secretsWith({ keys: null });
    expect(warnings).toEqual([expect.stringContaining('secrets.keyFile')]);
    await expect(secrets.put('t', 'a', VALUE)).rejects.toThrow('replicas over PostgreSQL need a key');
    await expect(secrets.valuesOf('t', ['a'])).rejects.toThrow('secret does not exist: a');
  });

  test('a key file with other content is named in an error that shows none of it', async () => {
    const ownKeyFile = join(directory, 'secrets.key');
    const { writeFile } = await import('node:fs/promises');
    await writeFile(ownKeyFile, 'not-a-key');
    const start = secretsWith({ keys: null, ownKeyFile });
    await expect(start).rejects.toThrow(ownKeyFile);
    await expect(start).rejects.not.toThrow('not-a-key');
    expect(await readFile(ownKeyFile, 'utf8')).toBe('not-a-key');
  });
});

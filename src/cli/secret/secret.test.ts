import { createReadStream, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const dir = mkdtempSync(join(tmpdir(), 'rookery-cli-secret-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const AT = new Date(Date.now() - 90_000).toISOString();
const SECRET = { name: 'db-password', created_at: AT, updated_at: AT, readable: true };
const service = () =>
  StubService.start(({ method }, response) =>
    json(response, 200, method === 'GET' ? { code: 200, secrets: [SECRET] } : { code: 200, secret: SECRET }),
  );

describe('secret set', () => {
  test.each([
    ['hunter2', 'hunter2'],
    ['hunter2\n', 'hunter2'],
    ['two\nlines\r\n', 'two\nlines'],
    [' \n\n', ' \n'],
  ])('secret set reads the value from stdin without one final newline: %j', async (stdin, value) => {
    await using stub = await service();
    const ran = await cli(['secret', 'set', 'db-password', '--address', stub.address], { stdin });
    expect(ran).toEqual({ code: 0, out: '', err: '' });
    expect(stub.last).toMatchObject({ method: 'PUT', url: '/api/secrets/db-password' });
    expect(JSON.parse(stub.last.body)).toEqual({ value });
  });

  test('secret set reads the value from a file, and does not print it', async () => {
    await using stub = await service();
    const file = join(dir, 'value');
    writeFileSync(file, 'hunter2\n');
    const ran = await cli(['secret', 'set', 'db-password', '--from-file', file, '--json', '--address', stub.address]);
    expect(JSON.parse(stub.last.body)).toEqual({ value: 'hunter2' });
    expect(ran.out + ran.err).not.toContain('hunter2');
  });

  test('secret set refuses a value that is not UTF-8 text', async () => {
    await using stub = await service();
    const file = join(dir, 'bytes');
    writeFileSync(file, Buffer.from([0x61, 0xff]));
    const set = ['secret', 'set', 'db-password', '--address', stub.address];
    const fromFile = await cli([...set, '--from-file', file]);
    expect(fromFile).toEqual({ code: 2, out: '', err: `The file ${file} is not UTF-8 text.\n` });
    const stdin = await cli(set, { stdin: createReadStream(file) });
    expect(stdin).toEqual({ code: 2, out: '', err: 'stdin is not UTF-8 text.\n' });
    expect(stub.seen).toEqual([]);
  });

  test.each([
    ['an empty value', ['db-password'], '\n', 'The value is empty'],
    ['an invalid name', ['../agent'], 'x', 'The name of a secret must be'],
  ])('secret set refuses %s, and sends nothing', async (_, args, stdin, text) => {
    await using stub = await service();
    const ran = await cli(['secret', 'set', ...args, '--address', stub.address], { stdin });
    expect(ran).toMatchObject({ code: 2, err: expect.stringContaining(text) });
    expect(stub.seen).toEqual([]);
  });
});

test('secret list shows names and ages', async () => {
  await using stub = await service();
  const ran = await cli(['secret', 'list', '--address', stub.address]);
  expect(ran.out).toMatch(/NAME\s+AGE\s+WRITTEN[\s\S]*db-password\s+\d+/);
  expect((await cli(['secret', 'ls', '-q', '--address', stub.address])).out).toBe('db-password\n');
});

test('secret delete deletes each given secret', async () => {
  await using stub = await service();
  expect(await cli(['secret', 'rm', 'a', 'b', '--address', stub.address])).toMatchObject({ code: 0 });
  expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
    'DELETE /api/secrets/a',
    'DELETE /api/secrets/b',
  ]);
});

test('secret delete continues after a failure, and --json lists the deleted secrets', async () => {
  await using stub = await StubService.start(({ url }, response) =>
    json(response, url.endsWith('/b') ? 404 : 200, { code: 0, message: 'secret not found: b' }),
  );
  const ran = await cli(['secret', 'rm', 'a', 'b', 'c', '--json', '--address', stub.address]);
  expect(ran).toEqual({
    code: 1,
    out: '{"deleted":["a","c"]}\n',
    err: 'secret not found: b\n"rookery secret list" shows those that exist.\n',
  });
});

describe('the option --secret', () => {
  const created = () => StubService.start((_, response) => json(response, 200, { code: 200, instance_id: 'i' }));
  const args = ['agent', 'create', 'a', '--runtime', 'python3.11', '--handler', 'a.b', '-e', 'PLAIN=x'];

  test("the option --secret sets a variable from a secret, under the secret's name or another name", async () => {
    await using stub = await created();
    await cli([...args, '--secret', 'KEY=db-password', '--secret', 'TOKEN', '--address', stub.address]);
    expect(JSON.parse(stub.lastWrite.body).env_vars).toEqual({
      PLAIN: 'x',
      KEY: { secret: 'db-password' },
      TOKEN: { secret: 'TOKEN' },
    });
  });

  test.each(['KEY=', '=db-password', 'KEY=a b'])('the option --secret refuses %j with exit code 2', async given => {
    const ran = await cli([...args, '--secret', given]);
    expect(ran).toMatchObject({ code: 2, err: expect.stringContaining('--secret must be') });
  });
});

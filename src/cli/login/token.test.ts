import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jwtVerify } from 'jose';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testFrontend } from '../../../test/http/frontend.ts';
import { memoryAwsKeys } from '../../../test/http/memory-aws-keys.ts';
import { memoryKeys } from '../../../test/http/memory-keys.ts';
import { cli } from '../../../test/parts/cli.ts';

const SECRET = 's'.repeat(40);
let dir: string;
let file: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-cli-'));
  file = join(dir, 'jwt.secret');
  writeFileSync(file, `${SECRET}\n`);
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

async function payloadOf(token: string) {
  const { payload, protectedHeader } = await jwtVerify(token.trim(), new TextEncoder().encode(SECRET));
  expect(protectedHeader.alg).toBe('HS256');
  return payload;
}

test('token create signs tenant, role and expiry with the secret of the file without its newline', async () => {
  const ran = await cli([
    'token',
    'create',
    '--tenant',
    'acme',
    '--role',
    'viewer',
    '--ttl',
    '2h',
    '--secret-file',
    file,
  ]);
  expect(ran).toMatchObject({ code: 0, err: '' });
  const payload = await payloadOf(ran.out);
  expect(payload).toMatchObject({ sub: 'acme', role: 'viewer' });
  expect((payload.exp ?? 0) - (payload.iat ?? 0)).toBe(7200);
  expect(payload.iss).toBeUndefined();
});

test('token create reads secret, issuer and audience from the variables of the service', async () => {
  const environment = { ROOKERY_JWT_SECRET: SECRET, ROOKERY_JWT_ISSUER: 'me', ROOKERY_JWT_AUDIENCE: 'you' };
  const ran = await cli(['token', 'create'], { environment });
  expect(await payloadOf(ran.out)).toMatchObject({ sub: 'default', iss: 'me', aud: 'you' });
});

test('token create leaves out the role when --role is absent', async () => {
  const least = await payloadOf((await cli(['token', 'create', '--secret-file', file])).out);
  expect(Object.keys(least).sort()).toEqual(['exp', 'iat', 'sub']);
  const most = await payloadOf((await cli(['token', 'create', '--role', 'developer', '--secret-file', file])).out);
  expect(most.role).toBe('developer');
});

test('token create does not print the secret in an error', async () => {
  writeFileSync(join(dir, 'short'), 'tiny-secret');
  const ran = await cli(['token', 'create', '--secret-file', join(dir, 'short')]);
  expect(ran.code).toBe(78);
  expect(ran.err).toContain('has 11 bytes, and a secret needs at least 32');
  expect(ran.err).not.toContain('tiny-secret');
});

test.each([
  [[], 'There is no secret to sign with'],
  [['--role', 'king', '--secret-file'], '--role must be one of developer, user, viewer, not "king"'],
  [['--tenant', 'a b', '--secret-file'], '--tenant must be 1 to 64'],
  [['--ttl', 'long', '--secret-file'], '--ttl must be a time such as'],
  [['--ttl', '10ms', '--secret-file'], '--ttl must be at least 1s'],
])('token create %j is refused with exit code 2', async (args, sentence) => {
  const ran = await cli(['token', 'create', ...args, ...(args.at(-1) === '--secret-file' ? [file] : [])]);
  expect(ran.code).toBe(2);
  expect(ran.err).toContain(sentence);
});

test('token create --e2b prints an API key that the service made', async () => {
  const keys = memoryKeys();
  await using frontend = testFrontend({ e2b: { keys, domain: null } });
  const environment = { ROOKERY_ADDRESS: await frontend.listen() };
  const ran = await cli(['token', 'create', '--e2b', '--tenant', 'acme', '--role', 'user'], { environment });
  expect(ran).toMatchObject({ code: 0, err: '' });
  expect(ran.out).toMatch(/^e2b_[0-9a-f]{40}\n$/);
  expect(await keys.find(ran.out.trim())).toMatchObject({ tenant: 'acme', role: 'user' });
  const usual = await cli(['token', 'create', '--e2b'], { environment });
  expect(await keys.find(usual.out.trim())).toMatchObject({ tenant: 'default', role: 'developer' });
});

test('token create --aws prints a key that the service made, as variables of a shell', async () => {
  const keys = memoryAwsKeys();
  const lambda = { keys, registry: null as never, code: {} as never, canChange: false };
  await using frontend = testFrontend({ service: { functions: null, asyncCalls: null } as never, lambda });
  const environment = { ROOKERY_ADDRESS: await frontend.listen() };
  const ran = await cli(['token', 'create', '--aws', '--tenant', 'acme', '--role', 'user'], { environment });
  expect(ran).toMatchObject({ code: 0, err: '' });
  const [, id = '', secret = ''] =
    /^export AWS_ACCESS_KEY_ID=(\w+)\nexport AWS_SECRET_ACCESS_KEY=([\w-]+)\n$/.exec(ran.out) ?? [];
  expect(await keys.find(id)).toMatchObject({ tenant: 'acme', role: 'user', secret });
});

test('token create refuses --aws with --e2b, and with --issuer', async () => {
  const both = await cli(['token', 'create', '--e2b', '--aws']);
  expect(both).toMatchObject({ code: 2, err: expect.stringContaining('Give --e2b or --aws, not both.') });
  const issuer = await cli(['token', 'create', '--aws', '--issuer', 'me']);
  expect(issuer).toMatchObject({ code: 2, err: expect.stringContaining('do not apply to --aws') });
});

test.each([
  [['--role', 'king'], '--role must be one of'],
  [['--tenant', 'a b'], '--tenant must be'],
  [['--secret-file', 'x'], 'do not apply to --e2b'],
])('token create --e2b %j is refused with exit code 2', async (args, sentence) => {
  const ran = await cli(['token', 'create', '--e2b', ...args]);
  expect(ran.code).toBe(2);
  expect(ran.err).toContain(sentence);
});

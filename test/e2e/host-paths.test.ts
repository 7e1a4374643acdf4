import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Answer, Bed } from './agents.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const CODE = `
import os
def names(event, context):
    return sorted(os.listdir(event["path"]))
`;

let directory: string;
let bed: Bed;
let socket: Server;

async function as(tenant: string): Promise<{ headers: Record<string, string> }> {
  const jwt = new SignJWT({ role: 'developer' }).setProtectedHeader({ alg: 'HS256' });
  const token = await jwt.setSubject(tenant).setExpirationTime('1h').sign(Buffer.from(SECRET));
  return { headers: { 'x-auth': token } };
}

async function serve(settings: readonly string[], file: string): Promise<Bed> {
  const all = ['enable_func_token_auth=true', `jwt.secretFile=${directory}/own/secret`, 'jobs.allowHostPaths=true'];
  const args = [...all, ...settings].flatMap(setting => ['--set', setting]);
  const started = await Bed.start({ 'app.py': CODE }, { args: [...args, '--config', file] });
  const { headers } = await as('victim');
  const url = `${started.server.frontendUrl}/api/packages/gcs/_ray_pkg_secret.zip`;
  expect((await fetch(url, { method: 'PUT', body: 'of the victim', headers })).status).toBe(200);
  return started;
}

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-paths-'));
  for (const name of ['own', 'allowed', 'allowed/code', 'beside', 'allowed-too']) mkdirSync(join(directory, name));
  writeFileSync(join(directory, 'own/secret'), SECRET);
  writeFileSync(join(directory, 'own/rookery.yaml'), 'maxProcesses: 100\n');
  for (const name of ['allowed/code', 'beside', 'allowed-too']) writeFileSync(join(directory, name, 'app.py'), CODE);
  bed = await serve([`mounts.allow=${directory}/allowed`], join(directory, 'own/rookery.yaml'));
  const links = { packages: `${bed.server.dataDir}/packages/victim`, etc: '/etc', beside: '../beside', own: '../own' };
  for (const [name, to] of Object.entries(links)) symlinkSync(to, join(directory, 'allowed', `to-${name}`));
  execFileSync('mkfifo', [join(directory, 'allowed/fifo')]);
  socket = createServer();
  await new Promise<void>(resolve => socket.listen(join(directory, 'allowed/socket'), resolve));
});
afterAll(async () => {
  socket?.close();
  await bed?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** All fields in which a caller can name a path of the host. */
const WAYS = ['mount', 'workspace', 'local', 'copy', 'agent function', 'working_dir', 'py_modules'] as const;
type Way = (typeof WAYS)[number] | 'function mount';
let calls = 0;

async function use(way: Way, path: string, on: Bed): Promise<Answer> {
  const me = await as('mallory');
  calls += 1;
  if (way === 'working_dir' || way === 'py_modules') {
    const runtime_env = way === 'working_dir' ? { working_dir: path } : { py_modules: [path] };
    const url = `${on.server.frontendUrl}/api/jobs/`;
    const body = JSON.stringify({ entrypoint: 'true', runtime_env });
    const answer = await fetch(url, { method: 'POST', body, ...me });
    return { status: answer.status, body: { message: await answer.text() } };
  }
  if (way === 'mount' || way === 'workspace') {
    const more = way === 'mount' ? { mounts: [{ source: path, target: '/code' }] } : { workspace: path, mounts: [] };
    return await on.ask('POST', '/api/agent', on.createBody(`a${calls}`, 'app.names', {}, more), me);
  }
  const registered = await on.ask(
    'POST',
    '/serverless/v1/functions',
    {
      ...{ name: `0@paths@f${calls}`, runtime: on.runtime, cpu: 500, memory: 128, handler: 'app.names' },
      ...{ kind: way === 'agent function' ? 'agent' : 'faas' },
      ...(way === 'function mount'
        ? { codePath: `${directory}/allowed/code`, rootfs: { mounts: [{ source: path, target: '/mounted' }] } }
        : { codePath: path }),
      storageType: way === 'copy' ? 'copy' : 'local',
    },
    { ...me, meta: true },
  );
  expect(registered).toMatchObject({ status: 200, body: { code: 0 } });
  const urn = String(registered.body.functionVersionUrn);
  return await on.ask(
    'POST',
    `/serverless/v1/functions/${urn}/invocations`,
    { path: way === 'function mount' ? '/mounted' : '/opt/function/code' },
    me,
  );
}

const refused = (way: Way, why = ''): object => {
  const isCode = way === 'local' || way === 'copy' || way === 'agent function';
  const noun = isCode ? 'code path' : way === 'mount' ? 'mount source' : 'workspace';
  const message = expect.stringMatching(new RegExp(`unsafe ${noun}: .*${why}`));
  return isCode ? { status: 500, body: { code: 4001, message } } : { status: 400, body: { message } };
};

describe.each(WAYS)('host paths as %s', way => {
  test.each([
    ['/etc', () => '/etc'],
    ['another tenant’s packages', () => `${bed.server.dataDir}/packages/victim`],
    ['a package of another tenant', () => `${bed.server.dataDir}/packages/victim/_ray_pkg_secret.zip`],
    ['a link to /etc', () => `${directory}/allowed/to-etc`],
    ['/etc/shadow through a link', () => `${directory}/allowed/to-etc/shadow`],
    ['a link to another tenant’s packages', () => `${directory}/allowed/to-packages`],
    ['a missing name below such a link', () => `${directory}/allowed/to-packages/no-such-name`],
    ['the directory of the configuration and the secret', () => `${directory}/own`],
    ['the secret through a link', () => `${directory}/allowed/to-own/secret`],
    ['what Docker keeps', () => '/var/lib/docker'],
    ['the runtime state of containerd in another spelling', () => '/var/run/containerd/io.containerd.runtime.v2.task'],
  ])('a host path to %s is refused', async (_, path) => {
    expect(await use(way, path(), bed)).toMatchObject(refused(way));
  });

  test.each([
    ['a place beside', () => `${directory}/beside`],
    ['a directory whose name only begins like an allowed one', () => `${directory}/allowed-too`],
    ['a link to a directory that is not allowed', () => `${directory}/allowed/to-beside`],
    ['a missing directory that is not allowed', () => `${directory}/nothing`],
    ['/root', () => '/root'],
  ])('a host path to %s is refused because mounts.allow does not name it', async (_, path) => {
    expect(await use(way, path(), bed)).toMatchObject(refused(way, ' \\(mounts.allow does not name it\\)'));
  });

  test.each(['fifo', 'socket'])('a host path to a %s is refused without a wait', async name => {
    const why = ' \\(it is neither a file nor a directory\\)';
    expect(await use(way, `${directory}/allowed/${name}`, bed)).toMatchObject(refused(way, why));
  });

  test('an allowed host path is accepted', async () => {
    expect(await use(way, `${directory}/allowed/code`, bed)).toMatchObject({ status: 200 });
  });
});

describe('a mount of a function', () => {
  test.each([
    ['another tenant’s packages', () => `${bed.server.dataDir}/packages/victim`, ''],
    ['a link to /etc', () => `${directory}/allowed/to-etc`, ''],
    ['what Docker keeps', () => '/var/lib/docker', ''],
    ['a place beside', () => `${directory}/beside`, ' \\(mounts.allow does not name it\\)'],
    ['a socket', () => `${directory}/allowed/socket`, ' \\(it is neither a file nor a directory\\)'],
  ])('a mount of %s in a function is refused by the same rule, as an error of the function', async (_, path, why) => {
    const message = expect.stringMatching(new RegExp(`^unsafe mount source: .*${why}$`));
    expect(await use('function mount', path(), bed)).toMatchObject({ status: 500, body: { code: 4001, message } });
  });

  test('an allowed mount of a function is accepted', async () => {
    expect(await use('function mount', `${directory}/allowed/code`, bed)).toMatchObject({ status: 200 });
  });
});

describe('host paths with authentication and without mounts.allow', () => {
  let strict: Bed;
  beforeAll(async () => {
    strict = await serve([], join(directory, 'own/rookery.yaml'));
  });
  afterAll(() => strict?.[Symbol.asyncDispose]());

  test.each(WAYS)('%s: no path of the host is taken', async way => {
    for (const path of [`${directory}/allowed/code`, '/srv/nothing', '/root']) {
      expect(await use(way, path, strict)).toMatchObject(refused(way, ' \\(mounts.allow does not name it\\)'));
    }
    expect(await use(way, '/etc', strict)).toMatchObject(refused(way));
  });

  test('the status of a version does not reveal whether its code path exists', async () => {
    const status = async (codePath: string, on: Bed) => {
      calls += 1;
      const name = `0@paths@s${calls}`;
      const me = { ...(await as('mallory')), meta: true };
      const fields = { kind: 'faas', runtime: on.runtime, cpu: 500, memory: 128, handler: 'a.b' };
      await on.ask('POST', '/serverless/v1/functions', { name, ...fields, storageType: 'local', codePath }, me);
      const found = await on.ask('GET', `/serverless/v1/functions/${name}?versionNumber=$latest`, undefined, me);
      return (found.body.function as { status?: string } | undefined)?.status;
    };
    const packages = join(strict.server.dataDir, 'packages');
    for (const path of ['/etc', `${directory}/beside`, `${packages}/victim`, `${packages}/nobody`]) {
      expect(await status(path, strict), path).toBe('unavailable');
    }
    expect(await status(`${directory}/allowed/code`, bed)).toBe('');
  });
});

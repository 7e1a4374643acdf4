import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type TestMeta, testMeta } from '../../test/meta/meta.ts';
import { cli as runCli } from '../../test/parts/cli.ts';

let meta: TestMeta;
let address: string;
let directory: string;

beforeEach(async () => {
  meta = await testMeta();
  await meta.app.listen({ host: '127.0.0.1', port: 0 });
  address = `http://127.0.0.1:${(meta.app.server.address() as AddressInfo).port}`;
  directory = await mkdtemp(join(tmpdir(), 'rookery-cli-function-'));
});
afterEach(async () => {
  await meta[Symbol.asyncDispose]();
  await rm(directory, { recursive: true });
});

const cli = (...args: string[]) => runCli([...args, '--meta-address', address]);
const URN = 'sn:cn:yrk:default:function:0@default@hello';
const REGISTER = ['function', 'register', 'hello', '--runtime', 'python3.11', '--handler', 'app.handle'];

async function file(name: string, content: string): Promise<string> {
  const path = join(directory, name);
  await writeFile(path, content);
  return path;
}

describe('function', () => {
  test('register, publish, update, publish: each version keeps its own, and each URN is printed', async () => {
    expect(await cli(...REGISTER, '--env', 'A=1')).toMatchObject({ code: 0, out: `${URN}:$latest\n` });
    expect(await cli('function', 'publish', 'hello', '--as', 'v1', '--description', 'first')).toMatchObject({
      code: 0,
      out: `${URN}:v1\n`,
    });
    expect(await cli('function', 'update', 'hello', '--env', 'A=2', '--handler', 'app.other')).toMatchObject({
      code: 0,
    });
    expect(await cli('function', 'publish', 'hello', '--as', 'v2')).toMatchObject({ code: 0, out: `${URN}:v2\n` });
    const get = async (name: string) => JSON.parse((await cli('function', 'get', name, '--json')).out);
    expect(await get('hello:v1')).toMatchObject({
      environment: { A: '1' },
      handler: 'app.handle',
      versionDesc: 'first',
    });
    expect(await get('0@default@hello:v2')).toMatchObject({ environment: { A: '2' }, handler: 'app.other' });
    expect(await get(`${URN}:v1`)).toMatchObject({ versionNumber: 'v1' });
    expect((await cli('function', 'versions', 'hello', '-q')).out).toBe(`${URN}:v2\n${URN}:$latest\n${URN}:v1\n`);
    expect((await cli('function', 'list', '--at', 'latest', '-q')).out).toBe(`${URN}:$latest\n`);
    expect((await cli('function', 'list')).out).toMatch(/^NAME +VERSION +KIND/);
    expect((await cli('function', 'get', 'hello:v1')).out).toContain('0@default@hello');
    expect(await cli('function', 'delete', 'hello:v1')).toMatchObject({ code: 0, out: '0@default@hello:v1\n' });
    expect(await cli('function', 'delete', 'hello')).toMatchObject({ code: 0 });
    expect((await cli('function', 'list', '--json')).out).toBe('[]\n');
  });

  test('the code of an agent is a read-only mount at its codePath; that of a faas is its place on the host', async () => {
    await cli(...REGISTER, '--code', directory);
    const agent = JSON.parse((await cli('function', 'get', 'hello', '--json')).out);
    expect(agent).toMatchObject({
      kind: 'agent',
      codePath: '/opt/function/code',
      rootfs: { mounts: [{ source: directory, target: '/opt/function/code', readonly: true }] },
    });
    const faas = [
      'function',
      'register',
      'demo@served',
      '--kind',
      'faas',
      '--runtime',
      'python3.11',
      '--handler',
      'a.b',
    ];
    await cli(...faas, '--code', directory, '--min', '1', '--max', '2', '--concurrency', '3', '--timeout', '2m');
    expect(JSON.parse((await cli('function', 'get', 'demo@served', '--json')).out)).toMatchObject({
      name: '0@demo@served',
      storageType: 'local',
      codePath: directory,
      minInstance: 1,
      maxInstance: 2,
      concurrentNum: 3,
      timeout: 120,
    });
  });

  test('register -f tells every problem of a file at once, and sends nothing', async () => {
    const path = await file(
      'bad.yaml',
      'name: hello\nkind: faas\nruntime: python3.11\ncpu: "500"\nmemory: 1\nenvironment: {A: 1}\n',
    );
    const { code, err } = await cli('function', 'register', '-f', path);
    expect(code).toBe(2);
    expect(err.split('\n')).toEqual([
      `${path} has 6 problems:`,
      expect.stringContaining('  - name must have the format'),
      '  - cpu must be an integer',
      '  - memory must be between 16 and 1073741824, got 1',
      '  - environment.A must be a string',
      '  - handler is required for kind faas',
      expect.stringContaining('  - storageType is required for kind faas'),
      '',
    ]);
    expect((await meta.send('GET', '/functions')).body.result.total).toBe(0);
  });

  test.each([
    [
      'f.yaml',
      'name: 0@demo@hello\nkind: faas\nruntime: go\ncpu: 1\nmemory: 16\nhandler: a\nstorageType: local\ncodePath: /srv\n',
    ],
    [
      'f.json',
      '{"name":"0@demo@hello","kind":"faas","runtime":"go","cpu":1,"memory":16,"handler":"a","storageType":"local","codePath":"/srv"}',
    ],
  ])('register takes %s, and flags win over it', async (name, content) => {
    const path = await file(name, content);
    expect(await cli('function', 'register', '-f', path, '--cpu', '5')).toMatchObject({ code: 0 });
    expect(JSON.parse((await cli('function', 'get', 'demo@hello', '--json')).out)).toMatchObject({
      kind: 'faas',
      cpu: 5,
    });
  });

  test('a failure of the service is one sentence with its code, and exit code 1', async () => {
    await cli(...REGISTER);
    expect(await cli(...REGISTER)).toMatchObject({
      code: 1,
      err: 'the function name already exists. rename your function (code 4101)\n',
    });
    expect(await cli('function', 'publish', 'hello', '--revision', '1')).toMatchObject({
      code: 1,
      err: 'revisionId is non latest version (code 4134)\n',
    });
    expect(await cli('function', 'get', 'no')).toMatchObject({
      code: 1,
      err: 'function [0@default@no] is not found. check input parameters (code 4115)\n',
    });
  });

  test('reserve creates, changes, lists and gives up', async () => {
    await cli(...REGISTER);
    const reserve = (...args: string[]) => cli('function', 'reserve', 'hello', ...args, '--json');
    const gold = (min: number, max: number) => [
      { instanceLabel: 'gold', instanceConfigInfos: [{ clusterId: 'cluster001', minInstance: min, maxInstance: max }] },
    ];
    expect(JSON.parse((await reserve('--label', 'gold', '--min', '2')).out)).toEqual(gold(2, 100));
    expect(JSON.parse((await reserve('--label', 'gold', '--max', '5')).out)).toEqual(gold(2, 5));
    expect(JSON.parse((await reserve()).out)).toEqual(gold(2, 5));
    expect(await reserve('--label', 'gold', '--delete')).toMatchObject({ code: 0 });
    expect(JSON.parse((await reserve()).out)).toEqual([]);
    expect(await reserve('--min', '2')).toMatchObject({
      code: 2,
      err: '--min and --max need the --label that they are for.\n',
    });
  });

  test('what is no name is told before anything is sent', async () => {
    expect(await cli('function', 'get', 'He_llo')).toMatchObject({
      code: 2,
      err: expect.stringContaining('is not the name of a function'),
    });
  });
});

describe('pool', () => {
  const SMALL = ['pool', 'create', 'small', '--size', '2', '--cpu', '500m', '--memory', '512Mi'];

  test('create, list, update, delete', async () => {
    expect(await cli(...SMALL, '--label', 'a=b')).toMatchObject({ code: 0, out: 'small\n' });
    expect((await cli('pool', 'list')).out).toMatch(/small +default +0\/2 +2 +new +waiting for a Kubernetes backend/);
    expect(await cli('pool', 'update', 'small', '--size', '3')).toMatchObject({ code: 0 });
    expect(JSON.parse((await cli('pool', 'list', '--json')).out)).toMatchObject([
      { id: 'small', size: 3, labels: { a: 'b' } },
    ]);
    expect(await cli('pool', 'delete', 'small')).toMatchObject({ code: 0, out: 'small\n' });
    expect((await cli('pool', 'list', '-q')).out).toBe('');
  });

  test('a file holds one pool or many; its Kubernetes objects are written as what they are', async () => {
    const resources = 'resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 1m, memory: 1Mi}}';
    const path = await file(
      'pools.yaml',
      `pools:\n- id: a\n  ${resources}\n  tolerations: [{operator: Exists}]\n- id: b\n  ${resources}\n`,
    );
    expect(await cli('pool', 'create', '-f', path)).toMatchObject({ code: 0, out: 'a\nb\n' });
    expect(JSON.parse((await cli('pool', 'list', '--id', 'a', '--json')).out)).toMatchObject([
      { tolerations: '[{"operator":"Exists"}]' },
    ]);
  });

  test('every problem of every pool is told at once, and nothing is created', async () => {
    const path = await file('pools.yaml', '- {id: A}\n- {id: b, size: -1}\n');
    const { code, err } = await cli('pool', 'create', '-f', path);
    expect(code).toBe(2);
    expect(err).toContain('  - pool A: id must be 1 to 40 lowercase letters');
    expect(err).toContain('  - pool A: resources is required');
    expect(err).toContain('  - pool b: size must be between 0 and');
    expect((await cli('pool', 'list', '-q')).out).toBe('');
  });

  test('a failure of the service is its text, and exit code 1', async () => {
    await cli(...SMALL);
    expect(await cli(...SMALL)).toMatchObject({
      code: 1,
      err: 'failed to create pod pool, id: small, err: pool id already exists or is deleting (code 4104)\n',
    });
    expect(await cli('pool', 'delete', 'none')).toMatchObject({ code: 1, err: expect.stringContaining('(code 4120)') });
    expect(await cli('pool', 'delete')).toMatchObject({ code: 2 });
    expect(await cli('pool', 'update', 'small')).toMatchObject({ code: 2 });
  });
});

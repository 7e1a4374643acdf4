import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type TestMeta, testMeta } from '../../../test/meta/meta.ts';
import { cli as runCli } from '../../../test/parts/cli.ts';

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

describe('rookery function', () => {
  test('register, update and publish print each URN, and each version keeps its fields', async () => {
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
    const narrow = ['function', 'list', '--meta-address', address];
    const table = stripVTControlCharacters((await runCli(narrow, { isTerminal: true, columns: 80 })).out);
    expect(table).toContain('\n0@default@hello  ');
    expect(table.split('\n').filter(line => line.length > 80)).toEqual([]);
    expect((await cli('function', 'get', 'hello:v1')).out).toContain('0@default@hello');
    expect(await cli('function', 'delete', 'hello:v1')).toMatchObject({ code: 0, out: '0@default@hello:v1\n' });
    expect(await cli('function', 'delete', 'hello')).toMatchObject({ code: 0 });
    expect((await cli('function', 'list', '--json')).out).toBe('[]\n');
  });

  test('--code is a read-only mount for an agent, and a path of the host for a faas', async () => {
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

  test.each([
    [['--memory', '10'], ['--memory must be between 16 and 1073741824 MB, not 10']],
    [['--memory', '2G'], []],
    [
      ['--cpu', '0', '--max', '1001'],
      ['--cpu must be between 1 and 1000000 millicores, not 0', '--max must be between 0 and 1000, not 1001'],
    ],
    [
      ['--concurrency', '0', '--timeout', '9000000s'],
      ['--timeout must be between 1 and 8640000 s, not 9000000', '--concurrency must be between 1 and 1000, not 0'],
    ],
  ])('register %j names the flags of its problems', async (flags, problems) => {
    const named = [
      'function',
      'register',
      'demo@flags',
      '--kind',
      'faas',
      '--runtime',
      'python3.11',
      '--handler',
      'a.b',
    ];
    const { code, err } = await cli(...named, '--code', directory, ...flags);
    const found = err.split('\n').filter(line => line.startsWith('  - '));
    expect([code, found]).toEqual([problems.length === 0 ? 0 : 2, problems.map(text => `  - ${text}`)]);
  });

  test('register refuses --layer for other runtimes and for a file that cannot be read', async () => {
    const layer = ['--layer', join(directory, 'absent.zip')];
    const other = await cli(...REGISTER, ...layer);
    expect(other).toMatchObject({ code: 2, err: expect.stringContaining('--layer: layers need --runtime lambda') });
    const absent = await cli(
      'function',
      'register',
      'hello',
      '--runtime',
      'lambda',
      '--handler',
      'app.handle',
      ...layer,
    );
    expect(absent).toMatchObject({
      code: 2,
      err: expect.stringContaining('must be a zip or a tar.gz that can be read'),
    });
  });

  test('register -f reports all problems of a file and sends nothing', async () => {
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
  ])('register reads %s, and flags replace fields of the file', async (name, content) => {
    const path = await file(name, content);
    expect(await cli('function', 'register', '-f', path, '--cpu', '5')).toMatchObject({ code: 0 });
    expect(JSON.parse((await cli('function', 'get', 'demo@hello', '--json')).out)).toMatchObject({
      kind: 'faas',
      cpu: 5,
    });
  });

  test('an error of the service is printed with its code and the next step, and exit code 1', async () => {
    await cli(...REGISTER);
    expect(await cli(...REGISTER)).toMatchObject({
      code: 1,
      err: expect.stringMatching(
        /^the function name already exists. rename your function \(code 4101\)\n.*function update/,
      ),
    });
    expect(await cli('function', 'publish', 'hello', '--revision', '1')).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^revisionId is non latest version \(code 4134\)\n.*--revision/),
    });
    expect(await cli('function', 'get', 'no')).toMatchObject({
      code: 1,
      err: 'function [0@default@no] is not found. check input parameters (code 4115)\n"rookery function list" shows those that exist.\n',
    });
  });

  test('reserve creates, changes, lists and deletes reservations', async () => {
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

  test.each([
    ['get', 'He_llo', 'is not the name of a function'],
    ['get', 'sn:cn:nothing', 'is not the URN of a function'],
    ['get', 'hello:', 'names no version'],
    ['delete', 'hello:', 'names no version'],
    ['delete', `${URN}:`, 'is not the URN of a function'],
    ['update', 'hello:v1', 'names a version'],
    ['publish', `${URN}:v1`, 'names a version'],
    ['versions', 'hello:v1', 'names a version'],
  ])('function %s %s is refused before a request is sent, because it %s', async (command, name, why) => {
    await cli(...REGISTER);
    expect(await cli('function', command, name)).toMatchObject({ code: 2, err: expect.stringContaining(why) });
    expect((await meta.send('GET', '/functions')).body.result.total).toBe(1);
  });

  test('every command accepts a URN as the name of a function', async () => {
    await cli(...REGISTER);
    expect(await cli('function', 'update', URN, '--cpu', '5')).toMatchObject({ code: 0 });
    expect(await cli('function', 'publish', `${URN}:$latest`, '--as', 'v1')).toMatchObject({ out: `${URN}:v1\n` });
    expect((await cli('function', 'versions', URN, '-q')).out).toBe(`${URN}:v1\n${URN}:$latest\n`);
    expect(await cli('function', 'reserve', `${URN}:v1`, '--label', 'a', '--min', '1')).toMatchObject({ code: 0 });
    expect(await cli('function', 'delete', `${URN}:v1`)).toMatchObject({ code: 0, out: `${URN}:v1\n` });
    expect(await cli('function', 'delete', URN)).toMatchObject({ code: 0, out: `${URN}\n` });
  });

  test.each([['get'], ['update', '--cpu', '5'], ['publish'], ['reserve', '--label', 'a', '--min', '1'], ['delete']])(
    "function %s does not change one's own function when the URN names another tenant",
    async (command, ...flags) => {
      await cli(...REGISTER);
      const before = await meta.send('GET', '/functions');
      expect(await cli('function', command, URN.replace(':default:', ':acme:'), ...flags)).toMatchObject({
        code: 1,
        err: expect.stringContaining('(code 4115)'),
      });
      expect(await meta.send('GET', '/functions')).toEqual(before);
    },
  );

  test('a flag of an update changes one field, and all other fields are kept', async () => {
    await cli(...REGISTER, '--code', directory, '-p', '8080', '--initializer', 'app.begin', '-e', 'A=1', '-e', 'B=2');
    const changes = ['--user', 'nobody', '--image', 'i:1', '--pre-stop', 'app.end', '-e', 'B=3', '-e', 'C=4'];
    expect(await cli('function', 'update', 'hello', ...changes)).toMatchObject({ code: 0 });
    const get = async () => JSON.parse((await cli('function', 'get', 'hello', '--json')).out);
    const code = { source: directory, target: '/opt/function/code', readonly: true };
    expect(await get()).toMatchObject({
      codePath: '/opt/function/code',
      rootfs: { imageurl: 'i:1', user: 'nobody', ports: ['8080'], mounts: [code] },
      extendedHandler: { initializer: 'app.begin', pre_stop: 'app.end' },
      environment: { A: '1', B: '3', C: '4' },
    });
    await cli('function', 'update', 'hello', '--code-path', '/app');
    expect(await get()).toMatchObject({
      codePath: '/app',
      rootfs: { user: 'nobody', mounts: [{ ...code, target: '/app' }] },
    });
    await cli('function', 'update', 'hello', '--code', tmpdir());
    expect(await get()).toMatchObject({ codePath: '/app', rootfs: { mounts: [{ source: tmpdir(), target: '/app' }] } });
  });

  test('register and update take the schema of the type hints of the handler', async () => {
    await file('app.py', 'def handle(event: dict, context):\n    return event\n');
    const args = ['--input-schema', 'hints', '--no-dependencies'];
    expect(await cli(...REGISTER, '--kind', 'faas', '--code', directory, ...args)).toMatchObject({ code: 0 });
    const schema = async () => JSON.parse((await cli('function', 'get', 'hello', '--json')).out).inputSchema;
    expect(await schema()).toEqual({ type: 'object' });
    await file('app.py', 'def handle(event: int, context):\n    return event\n');
    // The code is where the latest revision has it.
    expect(await cli('function', 'update', 'hello', ...args)).toMatchObject({ code: 0 });
    expect(await schema()).toEqual({ type: 'integer' });
    await file('app.py', 'def handle(event, context):\n    return event\n');
    expect(await cli('function', 'update', 'hello', ...args)).toMatchObject({
      code: 2,
      err: expect.stringContaining('the parameter event has no type hint'),
    });
    expect(await schema()).toEqual({ type: 'integer' });
  });

  test('a flag beside a file changes one field of the file', async () => {
    const path = await file(
      'f.yaml',
      'name: 0@demo@hello\nkind:\nruntime: go\ncpu: 1\nmemory: 16\nenvironment: {A: "1", B: "2"}\nrootfs: {imageurl: i, mounts: [{source: /srv, target: /srv}]}\n',
    );
    expect(await cli('function', 'register', '-f', path, '--user', 'u', '-e', 'B=3')).toMatchObject({ code: 0 });
    expect(JSON.parse((await cli('function', 'get', 'demo@hello', '--json')).out)).toMatchObject({
      kind: 'agent',
      environment: { A: '1', B: '3' },
      rootfs: { imageurl: 'i', user: 'u', mounts: [{ source: '/srv', target: '/srv' }] },
    });
    await file('f.yaml', 'environment: {C: "4"}\n');
    expect(await cli('function', 'update', 'demo@hello', '-f', path, '-e', 'D=5')).toMatchObject({ code: 0 });
    expect(JSON.parse((await cli('function', 'get', 'demo@hello', '--json')).out)).toMatchObject({
      environment: { C: '4', D: '5' },
    });
  });

  test('delete continues when one function does not exist', async () => {
    await cli(...REGISTER);
    await cli('function', 'register', 'other', '--runtime', 'go');
    expect(await cli('function', 'delete', 'hello', 'no', 'other', 'none')).toEqual({
      code: 1,
      out: '0@default@hello\n0@default@other\n',
      err: ['no', 'none']
        .map(name => `function [0@default@${name}] is not found. check input parameters (code 4115)\n`)
        .concat('"rookery function list" shows those that exist.\n')
        .join(''),
    });
  });

  test('reserve refuses --cluster without --min and --max, and keeps the reservation', async () => {
    await cli(...REGISTER);
    await cli('function', 'reserve', 'hello', '--label', 'gold', '--min', '1');
    const deleted = await cli('function', 'reserve', 'hello', '--label', 'gold', '--cluster', 'c2', '--delete');
    expect(deleted).toMatchObject({ code: 2, err: expect.stringContaining('--cluster') });
    expect((await cli('function', 'reserve', 'hello')).out).toContain('gold');
  });
});

describe('rookery pool', () => {
  const SMALL = ['pool', 'create', 'small', '--size', '2', '--cpu', '500m', '--memory', '512Mi'];

  test('create, list, update and delete work on one pool', async () => {
    expect(await cli(...SMALL, '--label', 'a=b')).toMatchObject({ code: 0, out: 'small\n' });
    expect((await cli('pool', 'list')).out).toMatch(/small +default +0\/2 +2 +new +waiting for a Kubernetes backend/);
    expect(await cli('pool', 'update', 'small', '--size', '3')).toMatchObject({ code: 0 });
    expect(JSON.parse((await cli('pool', 'list', '--json')).out)).toMatchObject([
      { id: 'small', size: 3, labels: { a: 'b' } },
    ]);
    expect(await cli('pool', 'delete', 'small')).toMatchObject({ code: 0, out: 'small\n' });
    expect((await cli('pool', 'list', '-q')).out).toBe('');
  });

  test('create reads one pool or several from a file, with Kubernetes objects as YAML', async () => {
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

  test('create reports all problems of all pools, and creates none', async () => {
    const path = await file('pools.yaml', '- {id: A}\n- {id: b, size: -1}\n');
    const { code, err } = await cli('pool', 'create', '-f', path);
    expect(code).toBe(2);
    expect(err).toContain('  - pool A: id must be 1 to 40 lowercase letters');
    expect(err).toContain('  - pool A: resources is required');
    expect(err).toContain('  - pool b: size must be between 0 and');
    expect((await cli('pool', 'list', '-q')).out).toBe('');
  });

  test('create prints the created pools when other pools fail', async () => {
    await cli(...SMALL);
    const resources = 'resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 1m, memory: 1Mi}}';
    const path = await file('pools.yaml', ['a', 'small', 'a', 'b'].map(id => `- id: ${id}\n  ${resources}\n`).join(''));
    expect(await cli('pool', 'create', '-f', path)).toMatchObject({
      code: 1,
      out: 'a\nb\n',
      err: expect.stringContaining('id: small, err: pool id already exists or is deleting'),
    });
  });

  test('create refuses a file together with an id or flags', async () => {
    const path = await file('pool.yaml', 'id: a\n');
    for (const flags of [['b'], ['--size', '3'], ['--label', 'a=b']]) {
      expect(await cli('pool', 'create', '-f', path, ...flags)).toMatchObject({
        code: 2,
        err: 'Describe pools by the file or by an id and flags, not by both.\n',
      });
    }
  });

  test('delete continues when one pool does not exist', async () => {
    await cli(...SMALL);
    expect(await cli('pool', 'delete', 'none', 'small', '--json')).toMatchObject({
      code: 1,
      out: '{"deleted":["small"]}\n',
      err: expect.stringContaining('(code 4120)'),
    });
  });

  test('update removes the autoscaler when --hpa is empty', async () => {
    await cli(...SMALL);
    const hpa = async () => JSON.parse((await cli('pool', 'list', '--json')).out)[0].horizontal_pod_autoscaler_spec;
    await cli('pool', 'update', 'small', '--hpa', '{"maxReplicas":3}');
    expect(await hpa()).toBe('{"maxReplicas":3}');
    expect(await cli('pool', 'update', 'small', '--hpa', '')).toMatchObject({ code: 0 });
    expect(await hpa()).toBe('');
  });

  test('an error of the service is printed with exit code 1', async () => {
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

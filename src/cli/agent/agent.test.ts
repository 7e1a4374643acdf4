import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';
import { flagSentence } from './create.ts';

const ID = '3f1c2a9e-0000-4000-8000-000000000001';
let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-cli-'));
  mkdirSync(join(dir, 'code'));
  writeFileSync(join(dir, 'code', 'handler.py'), 'def handle(event, context): return event\n');
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const AGENT = {
  instance_id: ID,
  namespace: 'default',
  name: 'hello',
  tenant: 'default',
  status: 'RUNNING',
  sandbox_type: 'process',
  runtime: 'python3.11',
  handler: 'handler.handle',
  codePath: '/code',
  rootfs: {
    type: 'host',
    imageurl: 'host',
    user: '',
    workspace: '',
    mounts: [{ source: '/a', target: '/code', readonly: true }],
  },
  port_mappings: [{ protocol: 'tcp', container_port: 22, host_ip: '127.0.0.1', host_port: 4000 }],
  env_vars: { A: 'b' },
  resources: { cpu: 1000, memory: 2048 },
  start_time: new Date(Date.now() - 90_000).toISOString(),
  restarts: 2,
};

describe('agent create', () => {
  const created = () => StubService.start((_, response) => json(response, 200, { code: 200, instance_id: ID }));

  test('flags are sent as an inline request that mounts the code read-only at its code path', async () => {
    await using service = await created();
    const code = join(dir, 'code');
    const ran = await cli([
      ...['agent', 'create', 'hello', '--address', service.address, '--code', code, '--handler', 'handler.handle'],
      ...[
        '--runtime',
        'python3.11',
        '-e',
        'A=1',
        '-e',
        'B=x=y',
        '-v',
        '/data:/data:ro',
        '-v',
        '/out:/out',
        '--cpu',
        '500',
      ],
      ...['--memory', '256', '--initializer', 'handler.init', '--pre-stop', 'handler.stop', '--publish', 'tcp:22'],
      ...['--user', 'app', '--workspace', dir, '-n', 'team', '--sandbox', 'docker', '--image', 'debian:12'],
    ]);
    expect(ran).toEqual({ code: 0, out: `${ID}\n`, err: '' });
    expect(service.lastWrite).toMatchObject({ method: 'POST', url: '/api/agent' });
    expect(JSON.parse(service.lastWrite.body)).toEqual({
      namespace: 'team',
      name: 'hello',
      workspace: dir,
      env_vars: { A: '1', B: 'x=y' },
      mounts: [
        { source: code, target: '/code', readonly: true },
        { source: '/data', target: '/data', readonly: true },
        { source: '/out', target: '/out', readonly: false },
      ],
      runtime_spec: {
        runtime: 'python3.11',
        sandbox_type: 'docker',
        codePath: '/code',
        dependencies: 'auto',
        handler: 'handler.handle',
        extendedHandler: { initializer: 'handler.init', pre_stop: 'handler.stop' },
        rootfs: { imageurl: 'debian:12', user: 'app', ports: ['tcp:22'] },
        cpu: 500,
        memory: 256,
      },
    });
  });

  test('the Python of this machine is used when --runtime is absent and the service runs on this machine', async () => {
    await using service = await created();
    const ran = await cli([
      'agent',
      'create',
      'hello',
      '--address',
      service.address,
      '--code',
      join(dir, 'code'),
      '--handler',
      'handler.handle',
    ]);
    expect(ran.err).toBe('');
    expect(JSON.parse(service.lastWrite.body).runtime_spec.runtime).toMatch(/^python3\.\d+$/);
  });

  test('--runtime is required when the service runs on another machine', async () => {
    const ran = await cli(['agent', 'create', 'hello', '--address', 'http://rookery.invalid']);
    expect(ran).toMatchObject({ code: 2, err: expect.stringContaining('--runtime python3.11') });
  });

  test('--urn sends a request in registered mode', async () => {
    await using service = await created();
    const urn = 'sn:cn:yrk:default:function:0@s@f:1';
    await cli(['agent', 'create', 'hello', '--address', service.address, '--urn', urn, '-e', 'A=1']);
    expect(JSON.parse(service.lastWrite.body)).toEqual({
      namespace: 'default',
      name: 'hello',
      env_vars: { A: '1' },
      mounts: [],
      urn,
    });
  });

  test.each([
    ['agent.yaml', 'namespace: n\nname: hello\nruntime_spec:\n  runtime: go\n  rootfs: {imageurl: x}\n'],
    ['agent.json', '{"namespace":"n","name":"hello","runtime_spec":{"runtime":"go","rootfs":{"imageurl":"x"}}}'],
  ])('-f %s sends the content of the file unchanged', async (name, content) => {
    await using service = await created();
    const file = join(dir, name);
    writeFileSync(file, content);
    await cli(['agent', 'create', '-f', file, '--address', service.address]);
    const body = { namespace: 'n', name: 'hello', runtime_spec: { runtime: 'go', rootfs: { imageurl: 'x' } } };
    expect(JSON.parse(service.lastWrite.body)).toEqual(body);
  });

  test('-f - reads stdin, and a name on the command line replaces the name in the file', async () => {
    await using service = await created();
    await cli(['agent', 'create', 'other', '-f', '-', '--address', service.address], { stdin: 'name: hello\n' });
    expect(JSON.parse(service.lastWrite.body)).toEqual({ name: 'other' });
  });

  test('--idempotency-key is sent as a header', async () => {
    await using service = await created();
    await cli(['agent', 'create', 'a', '--runtime', 'go', '--idempotency-key', 'k1', '--address', service.address]);
    expect(service.lastWrite.headers['idempotency-key']).toBe('k1');
  });

  test('warnings are printed to stderr, and --json prints the response', async () => {
    const answer = { code: 200, instance_id: ID, warnings: ['uid 1000 is not uid 0'] };
    await using service = await StubService.start(({ method }, response) =>
      json(response, 200, method === 'POST' ? answer : { code: 200, instance: AGENT }),
    );
    const ran = await cli(['agent', 'create', 'a', '--runtime', 'go', '--json', '--address', service.address]);
    expect(JSON.parse(ran.out)).toEqual(answer);
    expect(ran.err).toBe('warning: uid 1000 is not uid 0\n');
  });

  test.each([
    [[], 'The agent needs a name'],
    [['x', '--code', '/nowhere/at/all'], '--code: the directory /nowhere/at/all does not exist'],
    [['x', '--code', 'DIR/code/handler.py'], '--code must be a directory'],
    [['x', '-e', 'A'], '--env must be NAME=value, not "A"'],
    [['x', '-v', '/a'], '--mount must be source:target'],
    [['x', '--runtime', 'go', '--cpu', 'much'], '--cpu must be a whole number'],
    [['x', '--code', 'DIR/code'], 'Give --handler module.function'],
    [['x', '--code', 'DIR/code', '--handler', 'handle'], '--handler must be module.function'],
    [['x', '--urn', 'u', '--code', 'DIR'], '--urn takes everything from the registered function: leave --code out'],
    [['-f', '/nowhere.yaml'], 'The file /nowhere.yaml cannot be read'],
    [['--nonsense'], "unknown option '--nonsense'"],
  ])('agent create %j is refused with exit code 2 before anything is sent', async (args, sentence) => {
    await using service = await created();
    const sent = args.map(arg => arg.replace(/^DIR/, dir));
    const ran = await cli(['agent', 'create', ...sent, '--address', service.address]);
    expect(ran.code).toBe(2);
    expect(ran.err).toContain(sentence);
    expect(service.seen).toEqual([]);
  });
});

test.each([
  [
    'invalid request body: --memory must be between 16 and 1073741824, got 10',
    '--memory must be between 16 and 1073741824 MB, not 10.',
  ],
  ['invalid request body: --cpu must be between 1 and 9, got 0', '--cpu must be between 1 and 9 millicores, not 0.'],
  ['invalid request body: --runtime must be text', '--runtime must be text'],
  ['failed to create agent: no room', 'failed to create agent: no room'],
])('an error of the service names the flag and its unit: %j', (sentence, expected) => {
  expect(flagSentence(sentence)).toBe(expected);
});

describe('agent invoke', () => {
  const DATA = '{"text":"hi","big":12345678901234567890,"pi": 3.10}';
  const answering = () => StubService.start((_, response) => response.end(`{"code":200,"data":${DATA},"message":""}`));

  test('agent invoke prints the result of the handler without rounding numbers', async () => {
    await using service = await answering();
    const ran = await cli(['agent', 'invoke', ID, '{"name": "you"}', '--address', service.address]);
    expect(ran).toEqual({ code: 0, out: `${DATA}\n`, err: '' });
    expect(service.last).toMatchObject({ method: 'POST', url: `/api/agent/${ID}/invoke`, body: '{"name": "you"}' });
  });

  test('agent invoke indents the result on a terminal, unless that would change a number', async () => {
    await using service = await StubService.start((seen, response) =>
      response.end(`{"code":200,"data":${seen.body},"message":""}`),
    );
    const invoke = async (data: string) =>
      (await cli(['agent', 'invoke', ID, data, '--address', service.address], { isTerminal: true })).out;
    expect(await invoke('{"a":[1]}')).toBe('{\n  "a": [\n    1\n  ]\n}\n');
    expect(await invoke('{"a":12345678901234567890}')).toBe('{"a":12345678901234567890}\n');
  });

  test('agent invoke sends {} as the event when no data is given', async () => {
    await using service = await answering();
    await cli(['agent', 'invoke', ID, '--address', service.address]);
    expect(service.last.body).toBe('{}');
  });

  test('agent invoke reads the event from a file with -d @file, and from stdin with -', async () => {
    await using service = await answering();
    const file = join(dir, 'event.json');
    writeFileSync(file, '[1]');
    await cli(['agent', 'invoke', ID, '-d', `@${file}`, '--address', service.address]);
    expect(service.last.body).toBe('[1]');
    await cli(['agent', 'invoke', ID, '-', '--address', service.address], { stdin: '[2]' });
    expect(service.last.body).toBe('[2]');
  });

  test('agent invoke sends --timeout and --trace-id as headers', async () => {
    await using service = await answering();
    await cli(['agent', 'invoke', ID, '--timeout', '1.5s', '--trace-id', 't1', '--address', service.address]);
    expect(service.last.headers).toMatchObject({ 'x-invoke-timeout-ms': '1500', 'x-trace-id': 't1' });
  });

  test('agent invoke finds an agent by its name in the namespace', async () => {
    await using service = await StubService.start((seen, response) => {
      if (seen.method === 'GET') json(response, 200, { code: 200, instances: [AGENT], next_cursor: null });
      else response.end('{"code":200,"data":null,"message":""}');
    });
    const ran = await cli(['agent', 'invoke', 'hello', '-n', 'team', '--address', service.address]);
    expect(ran.out).toBe('null\n');
    expect(service.seen.map(seen => seen.url)).toEqual([
      '/api/agent?namespace=team&name=hello&limit=1',
      `/api/agent/${ID}/invoke`,
    ]);
  });

  test('agent invoke fails with exit code 1 when no agent has the name', async () => {
    await using service = await StubService.start((_, response) => json(response, 200, { code: 200, instances: [] }));
    const ran = await cli(['agent', 'invoke', 'nobody', '--address', service.address]);
    expect(ran).toMatchObject({ code: 1, err: expect.stringContaining('There is no agent default/nobody.') });
  });

  test('agent invoke prints the error of the handler and ends with exit code 1', async () => {
    const message = 'invoke failed: code=4002 err=Fail to run user call handler. err: ValueError: boom.';
    await using service = await StubService.start((_, response) =>
      json(response.setHeader('x-trace-id', 't1'), 500, { code: 500, data: null, message }),
    );
    const ran = await cli(['agent', 'invoke', ID, '--address', service.address]);
    const next = `The traceback: rookery agent logs ${ID} (trace id t1)\nThe call: rookery call show t1`;
    expect(ran).toEqual({ code: 1, out: '', err: `${message}\n${next}\n` });
  });

  test.each([
    [['hello'], `The data is not JSON`],
    [['1', '-d', '2'], 'Give the data once'],
    [['1', '--timeout', 'soon'], '--timeout must be a time such as 90s'],
    [['-d', '@/nowhere.json'], 'The file /nowhere.json cannot be read'],
  ])('agent invoke refuses %j with exit code 2', async (args, sentence) => {
    const ran = await cli(['agent', 'invoke', ID, ...args]);
    expect(ran.code).toBe(2);
    expect(ran.err).toContain(sentence);
  });
});

test.each([
  ['create', ['create', 'hello', '--code', '.', '--handler', 'h.h', '--runtime', 'python3.11']],
  ['create --json', ['create', 'hello', '--code', '.', '--handler', 'h.h', '--runtime', 'python3.11', '--json']],
  ['restart', ['restart', ID]],
])(
  "agent %s prints the id and the reason, and ends with 1, when the agent's code cannot be loaded",
  async (_what, args) => {
    const load_error = 'code=4001 err=SyntaxError: invalid syntax (handler.py, line 1)';
    await using service = await StubService.start(({ method }, response) =>
      json(
        response,
        200,
        method === 'POST' ? { code: 200, instance_id: ID } : { code: 200, instance: { ...AGENT, load_error } },
      ),
    );
    const ran = await cli(['agent', ...args, '--address', service.address]);
    expect(ran).toMatchObject({ code: 1, out: expect.stringContaining(ID), err: expect.stringContaining(load_error) });
  },
);

describe('agent list', () => {
  test('agent list prints a table that shows the fault of an agent', async () => {
    const broken = { ...AGENT, name: 'broken', load_error: 'SyntaxError' };
    await using service = await StubService.start((_, response) =>
      json(response, 200, { code: 200, instances: [AGENT, broken], next_cursor: null }),
    );
    const ran = await cli(['agent', 'ls', '--address', service.address]);
    const lines = ran.out.split('\n');
    expect(lines[0]).toBe(
      'ID                                    NAME            STATUS                     RUNTIME     SANDBOX  RESTARTS  AGE',
    );
    expect(lines[1]).toMatch(/^3f1c2a9e-\S+ {2}default\/hello {3}RUNNING {20}python3\.11 {2}process {2}2 {9}\d+s$/);
    expect(lines[2]).toContain('RUNNING (code not loaded)');
  });

  test('agent list reads all pages, up to --limit', async () => {
    await using service = await StubService.start((seen, response) => {
      const isFirst = !seen.url.includes('cursor');
      json(response, 200, {
        code: 200,
        instances: [{ ...AGENT, name: isFirst ? 'a' : 'b' }],
        next_cursor: isFirst ? 'c1' : null,
      });
    });
    const ran = await cli(['agent', 'list', '--json', '--status', 'RUNNING', '--address', service.address]);
    expect(JSON.parse(ran.out).map((agent: { name: string }) => agent.name)).toEqual(['a', 'b']);
    expect(service.last.url).toBe('/api/agent?limit=999&status=RUNNING&cursor=c1');
  });

  test('agent list prints only ids with -q', async () => {
    await using service = await StubService.start((_, response) =>
      json(response, 200, { instances: [AGENT], next_cursor: null }),
    );
    expect((await cli(['agent', 'list', '-q', '--address', service.address])).out).toBe(`${ID}\n`);
  });

  test('agent list prints the next step to stderr when the list is empty', async () => {
    await using service = await StubService.start((_, response) =>
      json(response, 200, { instances: [], next_cursor: null }),
    );
    expect((await cli(['agent', 'list', '--address', service.address])).err).toContain('There is no agent yet');
  });
});

describe('agent get, delete, restart', () => {
  test('get prints every field that has a value', async () => {
    await using service = await StubService.start((_, response) => json(response, 200, { code: 200, instance: AGENT }));
    const ran = await cli(['agent', 'get', ID, '--address', service.address]);
    for (const text of [
      'default/hello',
      '/a at /code (read-only)',
      'tcp 22 at 127.0.0.1:4000',
      'A=b',
      '1000 millicores, 2048 MB',
    ]) {
      expect(ran.out).toContain(text);
    }
    expect(ran.out).not.toContain('workspace');
    expect(JSON.parse((await cli(['agent', 'get', ID, '--json', '--address', service.address])).out)).toEqual(AGENT);
  });

  test('delete continues after an agent that cannot be deleted, and reports the failure', async () => {
    const other = ID.replace(/1$/, '2');
    await using service = await StubService.start((seen, response) =>
      seen.url.includes(ID)
        ? json(response, 404, { code: 404, message: `instance not found: ${ID}` })
        : json(response, 200, { code: 200, status: 'deleted' }),
    );
    const ran = await cli(['agent', 'delete', ID, other, '--grace', '2s', '--address', service.address]);
    expect(ran).toEqual({ code: 1, out: `${other}\n`, err: `instance not found: ${ID}\n` });
    expect(service.last).toMatchObject({ method: 'DELETE', url: `/api/agent/${other}?grace=2` });
  });

  test.each(['pause', 'resume'])('%s prints the ids and reports an agent that cannot be changed', async action => {
    const other = ID.replace(/1$/, '2');
    const message = `instance ${ID} is being deleted`;
    await using service = await StubService.start((seen, response) =>
      seen.url.includes(ID) ? json(response, 409, { code: 409, message }) : json(response, 200, { code: 200 }),
    );
    const ran = await cli(['agent', action, ID, other, '--address', service.address]);
    expect(ran).toEqual({ code: 1, out: `${other}\n`, err: `${message}\n` });
    expect(service.lastWrite).toMatchObject({ method: 'POST', url: `/api/agent/${other}/${action}` });
  });

  test('ttl sends seconds and prints the end', async () => {
    const expires_at = '2030-01-01T00:00:00.000Z';
    await using service = await StubService.start((_, response) =>
      json(response, 200, { code: 200, instance: { ...AGENT, expires_at } }),
    );
    expect((await cli(['agent', 'ttl', ID, '90m', '--address', service.address])).out).toBe(`${expires_at}\n`);
    expect(service.lastWrite).toMatchObject({ method: 'PUT', url: `/api/agent/${ID}/ttl` });
    expect(JSON.parse(service.lastWrite?.body ?? '')).toEqual({ ttl_seconds: 5400 });
    await cli(['agent', 'ttl', ID, 'none', '--address', service.address]);
    expect(JSON.parse(service.lastWrite?.body ?? '')).toEqual({ ttl_seconds: 0 });
    expect((await cli(['agent', 'ttl', ID, 'soon', '--address', service.address])).code).toBe(2);
  });

  test('restart prints the id of the agent', async () => {
    await using service = await StubService.start((_, response) => json(response, 200, { code: 200, instance_id: ID }));
    expect((await cli(['agent', 'restart', ID, '--address', service.address])).out).toBe(`${ID}\n`);
    expect(service.lastWrite).toMatchObject({ method: 'POST', url: `/api/agent/${ID}/restart` });
  });
});

describe('agent logs', () => {
  test.each([
    ['the default namespace has the agent', 'default', { tail: '20' }],
    ['the namespace 20 has the agent', '20', { tail: null }],
  ])('agent logs reads -n 20 as a namespace or as a number of lines when %s', async (_, namespace, { tail }) => {
    await using service = await StubService.start(({ url }, response) => {
      const asked = new URL(url, 'http://service');
      if (asked.pathname.endsWith('/logs')) response.end('line\n');
      else if (asked.pathname === '/api/agent') {
        const instances = asked.searchParams.get('namespace') === namespace ? [{ instance_id: 'i' }] : [];
        json(response, 200, { instances });
      } else json(response, 200, { instance: { instance_id: 'i', namespace } });
    });
    const ran = await cli(['agent', 'logs', 'a', '-n', '20', '--address', service.address]);
    expect(ran).toEqual({ code: 0, out: 'line\n', err: '' });
    expect(new URL(service.last.url, service.address).searchParams.get('tail')).toBe(tail);
  });

  test('agent logs prints the bytes of the log as they arrive', async () => {
    await using service = await StubService.start(({ url }, response) => {
      if (!url.includes('/logs')) return json(response, 200, { instance: { instance_id: ID, status: 'FAILED' } });
      response.write('one\n');
      response.end('two\n');
    });
    const ran = await cli(['agent', 'logs', ID, '--tail', '5', '--since', '10m', '-f', '--address', service.address]);
    expect(ran).toEqual({ code: 0, out: 'one\ntwo\n', err: '' });
    const urls = service.seen.map(({ url }) => url);
    expect(urls).toContain(`/api/agent/${ID}/logs?tail=5&since=10m&follow=true`);
  });

  test('agent logs ends with exit code 69 when the connection breaks', async () => {
    await using service = await StubService.start((_, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('one\n', () => response.destroy());
    });
    const ran = await cli(['agent', 'logs', ID, '--address', service.address]);
    expect(ran).toMatchObject({ code: 69, out: 'one\n', err: expect.stringContaining('The connection broke') });
  });
});

describe('agent exec', () => {
  const answering = (answer: object) => StubService.start((_, response) => json(response, 200, answer));

  test('agent exec runs all words after the agent as the command, and ends with its exit code', async () => {
    await using service = await answering({ returncode: 3, stdout: 'out', stderr: 'err', truncated: false });
    const ran = await cli([
      'agent',
      'exec',
      '--address',
      service.address,
      '-w',
      '/x',
      '-e',
      'A=1',
      ID,
      'ls',
      '-l',
      '--all',
    ]);
    expect(ran).toEqual({ code: 3, out: 'out', err: 'err' });
    expect(JSON.parse(service.last.body)).toEqual({
      command: ['ls', '-l', '--all'],
      working_dir: '/x',
      env: { A: '1' },
      timeout: 300,
    });
  });

  test("agent exec passes options after the command's name to the command without a --", async () => {
    await using service = await answering({ returncode: 0, stdout: '', stderr: '', truncated: false });
    const ran = await cli(['agent', 'exec', ID, 'ls', '-w', '--json'], {
      environment: { ROOKERY_ADDRESS: service.address },
    });
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(JSON.parse(service.last.body).command).toEqual(['ls', '-w', '--json']);
  });

  test('agent exec drops a -- before the command, and keeps a -- inside of it', async () => {
    await using service = await answering({ returncode: 0, stdout: '', stderr: '', truncated: false });
    await cli(['agent', 'exec', '--address', service.address, ID, '--', 'a', '--', 'b']);
    expect(JSON.parse(service.last.body).command).toEqual(['a', '--', 'b']);
  });

  test('agent exec reads options between the agent and the command', async () => {
    await using service = await answering({ returncode: 0, stdout: '', stderr: '', truncated: false });
    const environment = { ROOKERY_ADDRESS: service.address };
    await cli(['agent', 'exec', ID, '-w', '/x', '-e', 'A=1', '--', 'ls', '-w'], { environment });
    expect(JSON.parse(service.last.body)).toMatchObject({ command: ['ls', '-w'], working_dir: '/x', env: { A: '1' } });
    await cli(['agent', 'exec', ID, '--timeout', '7s', 'ls', '-l'], { environment });
    expect(JSON.parse(service.last.body)).toMatchObject({ command: ['ls', '-l'], timeout: 7 });
  });

  test.each([
    [['--bogus', '--', 'ls'], '"--bogus" is no option of "rookery agent exec".'],
    [['-w', '/x'], 'The command is missing: rookery agent exec <agent> -- <command...>.'],
  ])('agent exec refuses the words %j after the agent', async (words, sentence) => {
    const ran = await cli(['agent', 'exec', ID, ...words]);
    expect(ran).toMatchObject({ code: 2, err: expect.stringContaining(sentence) });
  });

  test('agent exec ends with exit code 124 when the command reaches its timeout', async () => {
    await using service = await answering({ returncode: -1, stdout: '', stderr: '', truncated: true });
    const ran = await cli(['agent', 'exec', '--timeout', '2s', '--address', service.address, ID, 'sleep', '9']);
    expect(ran.code).toBe(124);
    expect(ran.err).toBe('(the output was too long and was cut)\nThe command was ended after 2 s.\n');
  });
});

import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const ID = '3f1c2a9e-0000-4000-8000-000000000001';

/** A service that creates a sandbox, and answers a cell with these lines. */
const withLines = (...lines: readonly object[]) =>
  StubService.start(({ url }, response) => {
    if (url.endsWith('/code')) response.end(lines.map(line => `${JSON.stringify(line)}\n`).join(''));
    else json(response, 200, { code: 200, instance_id: ID });
  });

test('run makes a sandbox, prints output and value of the code, and deletes the sandbox', async () => {
  await using service = await withLines(
    { type: 'stdout', text: '1\n' },
    { type: 'stderr', text: 'odd\n' },
    { type: 'keepalive' },
    { type: 'result', text: '2', is_main_result: true },
    { type: 'end_of_execution' },
  );
  const ran = await cli(['run', 'print(1); 2', '-e', 'A=b', '--address', service.address]);
  expect(ran).toEqual({ code: 0, out: '1\n2\n', err: 'odd\n' });
  const [create, cell, end] = service.seen;
  expect(JSON.parse(create?.body ?? '')).toMatchObject({ template: 'code-interpreter-v1', ttl_seconds: 3600 });
  expect(JSON.parse(cell?.body ?? '')).toEqual({ code: 'print(1); 2', env_vars: { A: 'b' } });
  expect([end?.method, end?.url]).toEqual(['DELETE', `/api/agent/${ID}?grace=0`]);
});

test('run prints the traceback and fails when the code fails', async () => {
  await using service = await withLines(
    { type: 'error', name: 'ValueError', value: 'no', traceback: 'Traceback: ValueError: no' },
    { type: 'end_of_execution' },
  );
  const ran = await cli(['run', '-', '--in', ID, '--address', service.address], { stdin: 'raise ValueError("no")' });
  expect(ran).toEqual({ code: 1, out: '', err: 'Traceback: ValueError: no\n' });
  expect(service.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([`POST /api/agent/${ID}/code`]);
});

test('run fails when the lines end before the execution', async () => {
  await using service = await withLines({ type: 'stdout', text: '1' });
  expect(await cli(['run', 'x', '--in', ID, '--json', '--address', service.address])).toMatchObject({
    code: 1,
    out: '{"type":"stdout","text":"1"}\n',
  });
});

test('run needs either the code or a file', async () => {
  expect(await cli(['run', '--address', '127.0.0.1:1'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('Give either the code or --file'),
  });
});

test('sandbox create sends the template with its options, and prints the id', async () => {
  await using service = await withLines();
  const options = ['--ttl', '1m', '--label', 'a=b', '-e', 'A=1', '--memory', '64'];
  const ran = await cli(['sandbox', 'create', 'box', ...options, '--address', service.address]);
  expect(ran).toEqual({ code: 0, out: `${ID}\n`, err: '' });
  expect(JSON.parse(service.last.body)).toEqual({
    namespace: 'default',
    name: 'box',
    template: 'base',
    runtime_spec: { runtime: 'python3', rootfs: { imageurl: 'base' }, memory: 64 },
    env_vars: { A: '1' },
    labels: { a: 'b' },
    ttl_seconds: 60,
  });
});

test('sandbox list shows agents with a template only', async () => {
  const sandbox = { instance_id: ID, name: 'box', template: 'base', status: 'RUNNING' };
  const instances = [sandbox, { ...sandbox, instance_id: 'other', template: undefined }];
  await using service = await StubService.start((_, response) =>
    json(response, 200, { code: 200, instances, next_cursor: null }),
  );
  const ran = await cli(['sandbox', 'list', '-l', 'a=b', '--address', service.address]);
  expect(ran.out).toContain(ID);
  expect(ran.out).not.toContain('other');
  expect(service.last.url).toBe('/api/agent?limit=1000&label=a%3Db');
});

test('sandbox kill deletes sandboxes', async () => {
  await using service = await withLines();
  expect(await cli(['sandbox', 'kill', ID, '--address', service.address])).toEqual({
    code: 0,
    out: `${ID}\n`,
    err: '',
  });
  expect(service.last.method).toBe('DELETE');
});

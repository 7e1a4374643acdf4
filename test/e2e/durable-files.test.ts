import { chmodSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { checkDurableFiles } from '../suites/durable-files.ts';
import { Bed } from './agents.ts';

const CODE = { 'app.py': 'def handle(event, context):\n    return 1\n' };

test('the directory of a durable agent survives sleeps, a crash and a kill, and goes with the agent', async () => {
  await using bed = await Bed.start(CODE);
  await checkDurableFiles(bed, {});
}, 120_000);

test('a create refuses places for files that overlap mounts or are no path, and leaves no directory', async () => {
  await using bed = await Bed.start(CODE);
  for (const path of ['/', 'data', '/data/../etc', '/data/', '/code/data']) {
    const body = bed.createBody('a', 'app.handle', {}, { durable: { files: { path } } });
    const reason = path.startsWith('/code') ? '/code/data and /code overlap' : 'must be an absolute path other than /';
    expect(await bed.ask('POST', '/api/agent', body)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(reason) },
    });
  }
  expect(existsSync(join(bed.server.dataDir, 'agents'))).toBe(false);
}, 60_000);

test('a create or import whose name is taken, or whose secret is missing, leaves no directory', async () => {
  await using bed = await Bed.start(CODE);
  const more = { durable: { files: { path: '/data' } } };
  const id = await bed.create('a', 'app.handle', {}, more);
  const refused = async (name: string, changes: object) =>
    (await bed.ask('POST', '/api/agent', bed.createBody(name, 'app.handle', {}, { ...more, ...changes }))).status;
  expect(await refused('a', {})).toBe(409);
  expect(await refused('b', { env_vars: { KEY: { secret: 'missing' } } })).toBeGreaterThanOrEqual(400);
  const exported = await fetch(`${bed.server.frontendUrl}/api/agent/${id}/export`);
  const imported = await fetch(`${bed.server.frontendUrl}/api/agent/import`, {
    method: 'POST',
    headers: { 'content-type': 'application/octet-stream' },
    body: await exported.arrayBuffer(),
  });
  expect(imported.status).toBe(409);
  const names = readdirSync(join(bed.server.dataDir, 'agents'), { recursive: true });
  expect(names.filter(name => String(name).includes('/'))).toEqual([`${id.slice(0, 2)}/${id}`]);
}, 60_000);

test('a change gives an agent files at its next start, and a delete before that start leaves none', async () => {
  await using bed = await Bed.start({
    'app.py': 'import os\ndef handle(event, context):\n    return os.path.isdir("/data")\n',
  });
  const change = { durable: { files: { path: '/data' } } };
  const under = (id: string) => existsSync(join(bed.server.dataDir, 'agents', id.slice(0, 2), id));
  const [used, unused] = [
    await bed.create('a', 'app.handle', {}, { durable: true }),
    await bed.create('b', 'app.handle', {}, { durable: true }),
  ];
  for (const id of [used, unused]) expect((await bed.ask('PATCH', `/api/agent/${id}`, change)).status).toBe(200);
  expect((await bed.invoke(used)).body.data).toBe(false);
  expect((await bed.ask('POST', `/api/agent/${used}/sleep`)).status).toBe(200);
  expect((await bed.invoke(used)).body.data).toBe(true);
  for (const id of [used, unused]) expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
  expect([under(used), under(unused)]).toEqual([false, false]);
}, 60_000);

test('the start of a service removes the directories of agents that do not exist', async () => {
  await using bed = await Bed.start(CODE);
  const id = await bed.create('a', 'app.handle', {}, { durable: { files: { path: '/data' } } });
  await bed.server.end('SIGKILL');
  const directory = join(bed.server.dataDir, 'agents');
  const gone = '00000000-0000-4000-8000-000000000000';
  mkdirSync(join(directory, '00', gone), { recursive: true });
  bed.server = await bed.server.next();
  expect(readdirSync(join(directory, '00'))).toEqual([]);
  expect(readdirSync(join(directory, id.slice(0, 2)))).toEqual([id]);
}, 60_000);

describeWith(['root', 'namespaces'], 'a durable HTTP server', () => {
  test('a durable HTTP server keeps its files over a sleep, and its create warns that it has no state', async () => {
    await using bed = await Bed.start({
      'server.py': `
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open("/data/log", "a") as log:
            log.write("line\\n")
        with open("/data/log") as log:
            body = str(len(log.readlines())).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("", int(os.environ.get("PORT", "8000"))), Handler).serve_forever()
`,
      bootstrap: '#!/bin/sh\nexec python3 /code/server.py\n',
    });
    chmodSync(join(bed.codeDir, 'bootstrap'), 0o755);
    const spec = { runtime: 'http', handler: '' };
    const created = await bed.ask(
      'POST',
      '/api/agent',
      bed.createBody('a', '', spec, { durable: { files: { path: '/data' } } }),
    );
    expect(created).toMatchObject({
      status: 200,
      body: { warnings: expect.arrayContaining([expect.stringContaining('an HTTP server has no context.state')]) },
    });
    const id = String(created.body.instance_id);
    expect((await bed.invoke(id)).body.data).toBe(1);
    expect((await bed.ask('POST', `/api/agent/${id}/sleep`)).status).toBe(200);
    expect((await bed.invoke(id)).body.data).toBe(2);
  }, 60_000);
});

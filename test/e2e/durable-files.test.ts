import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
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

test('a create whose name is taken leaves no directory', async () => {
  await using bed = await Bed.start(CODE);
  const more = { durable: { files: { path: '/data' } } };
  const id = await bed.create('a', 'app.handle', {}, more);
  expect(await bed.ask('POST', '/api/agent', bed.createBody('a', 'app.handle', {}, more))).toMatchObject({
    status: 409,
  });
  const names = readdirSync(join(bed.server.dataDir, 'agents'), { recursive: true });
  expect(names.filter(name => String(name).includes('/'))).toEqual([`${id.slice(0, 2)}/${id}`]);
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

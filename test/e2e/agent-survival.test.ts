import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Bed } from './agents.ts';
import { settled } from './footprint.ts';

const COUNTER = `
import time
n = 0
def count(event, context):
    global n
    n += 1
    return n
def sleep(event, context):
    time.sleep(event)
    return "slept"
`;

const MARKS = `
open("/workspace/loaded", "w").close()
def mark(event, context):
    return None
`;

const LOCKS = `
const { DatabaseSync } = require('@photostructure/sqlite');
new DatabaseSync(process.argv[1]).exec('BEGIN IMMEDIATE');
console.log('locked');
setInterval(() => {}, 1_000_000);
`;

describe('after kill -9 of the server', () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ 'counter.py': COUNTER });
  });
  afterAll(() => bed?.[Symbol.asyncDispose]());

  it('100 live agents serve with the memory of their handlers, and running calls failed at once', async () => {
    const ids = await Promise.all(Array.from({ length: 100 }, (_, index) => bed.create(`s${index}`, 'counter.count')));
    await Promise.all(ids.map(id => bed.invoke(id)));
    const sleeper = await bed.create('sleeper', 'counter.sleep');
    const running = bed.invoke(sleeper, 600);
    running.catch(() => undefined);
    await bed.killAndRestart();
    await expect(running).rejects.toThrow();
    const answers = await Promise.all(ids.map(id => bed.invoke(id)));
    expect(answers.map(({ body }) => body.data)).toEqual(ids.map(() => 2));
    // The call that the old server was waiting for was cancelled, so the instance is free.
    expect((await bed.invoke(sleeper, 0)).body.data).toBe('slept');
  });

  it('an agent whose create was just answered keeps its whole record, and the repeated create returns it', async () => {
    for (const name of ['m0', 'm1', 'm2']) {
      const more = { headers: { 'idempotency-key': name } };
      const create = () => bed.ask('POST', '/api/agent', bed.createBody(name, 'counter.count'), more);
      const made = await create();
      bed.server.process.kill('SIGKILL');
      expect(made.status).toBe(200);
      const id = String(made.body.instance_id);
      await bed.killAndRestart();
      const record = (await bed.ask('GET', `/api/agent/${id}`)).body.instance;
      expect(record).toMatchObject({ status: 'RUNNING', restarts: 0, sandbox_id: expect.stringMatching(/^\d+$/) });
      expect((await bed.invoke(id)).body.data).toBe(1);
      expect((await create()).body.instance_id).toBe(id);
      expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    }
  });

  it('an agent with stopped processes is not ended, and serves when the processes continue', async () => {
    const id = await bed.create('stalled', 'counter.count');
    expect((await bed.invoke(id)).body.data).toBe(1);
    const { body } = await bed.ask('GET', `/api/agent/${id}`);
    const first = Number((body.instance as { sandbox_id: string }).sandbox_id);
    const processes = [first, ...descendants(first)];
    for (const pid of processes) process.kill(pid, 'SIGSTOP');
    await bed.killAndRestart();
    expect((await bed.ask('GET', `/api/agent/${id}`)).body.instance).toMatchObject({ status: 'RUNNING' });
    expect(await bed.invoke(id)).toMatchObject({
      status: 500,
      body: { message: expect.stringContaining(`instance ${id} has not answered yet`) },
    });
    for (const pid of processes) process.kill(pid, 'SIGCONT');
    await vi.waitFor(async () => expect((await bed.invoke(id)).body.data).toBe(2));
  });

  it('an agent that died while no server ran is FAILED with the reason', async () => {
    const id = await bed.create('victim', 'counter.count');
    const { body } = await bed.ask('GET', `/api/agent/${id}`);
    const pid = Number((body.instance as { sandbox_id: string }).sandbox_id);
    await bed.server.end('SIGKILL');
    process.kill(pid, 'SIGKILL');
    bed.server = await bed.server.next();
    const after = (await bed.ask('GET', `/api/agent/${id}`)).body.instance;
    expect(after).toMatchObject({ status: 'FAILED', status_reason: expect.stringContaining('exited') });
    expect(await bed.invoke(id)).toMatchObject({
      status: 404,
      body: { message: expect.stringContaining(`instance not found: ${id}`) },
    });
    // The agent holds its name until it is deleted.
    expect((await bed.ask('POST', '/api/agent', bed.createBody('victim', 'counter.count'))).status).toBe(409);
    expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
    await bed.create('victim', 'counter.count');
  });
});

describe('creates and deletes of agents', () => {
  it('creates leave no sandbox and no name when kill -9 hits between sandbox start and record', async () => {
    await using bed = await Bed.start({ 'counter.py': COUNTER, 'marks.py': MARKS });
    const workspace = mkdtempSync(join(tmpdir(), 'rookery-workspace-'));
    try {
      // A lock blocks other writers. Its holder is killed too: the last process that closes the database
      // removes the log.
      const writer = spawn(process.execPath, ['-e', LOCKS, join(bed.server.dataDir, 'rookery.db')]);
      await once(writer.stdout, 'data');
      const creating = bed.ask('POST', '/api/agent', bed.createBody('a', 'marks.mark', {}, { workspace }));
      creating.catch(() => undefined);
      await vi.waitFor(() => expect(existsSync(join(workspace, 'loaded'))).toBe(true));
      await bed.server.end('SIGKILL');
      await expect(creating).rejects.toThrow();
      writer.kill('SIGKILL');
      await once(writer, 'close');
      bed.server = await bed.server.next();
      expect((await bed.ask('GET', '/api/agent')).body.instances).toEqual([]);
      expect(readdirSync(join(bed.server.dataDir, 'run', 'instances'))).toEqual([]);
      await bed.create('a', 'counter.count');
    } finally {
      rmSync(workspace, { recursive: true, force: true });
    }
  });

  it('200 creates and deletes leave no process, mount, control group, file or descriptor', async () => {
    await using bed = await Bed.start({ 'counter.py': COUNTER });
    const rounds = async (count: number) => {
      for (let done = 0; done < count; done += 20) {
        const ids = await Promise.all(
          Array.from({ length: 20 }, (_, index) => bed.create(`c${index}`, 'counter.count')),
        );
        await Promise.all(ids.map(id => bed.invoke(id)));
        await Promise.all(ids.map(id => bed.ask('DELETE', `/api/agent/${id}`)));
      }
    };
    await rounds(60);
    const before = await settled(bed);
    await rounds(200);
    expect(await settled(bed, now => isDeepStrictEqual(now, before))).toEqual(before);
  }, 180_000);
});

function descendants(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  return children.flatMap(child => [child, ...descendants(child)]);
}

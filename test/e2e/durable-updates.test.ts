import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cli } from '../parts/cli.ts';
import { Bed } from './agents.ts';

const code = (word: string) => `
import os
def handle(event, context):
    context.state["n"] = context.state.get("n", 0) + 1
    if event.get("remind"):
        context.set_alarm("remind", after=3600)
    return ["${word}", context.state["n"], os.environ.get("WORD"), context.memory_mb]

def on_alarm(alarm, context):
    pass
`;

describe('an update of a durable agent', { timeout: 120_000 }, () => {
  let bed: Bed;
  let changed: string;
  beforeAll(async () => {
    bed = await Bed.start({ 'app.py': code('old') });
    changed = mkdtempSync(join(tmpdir(), 'rookery-changed-'));
    writeFileSync(join(changed, 'app.py'), code('new'));
  }, 120_000);
  afterAll(async () => {
    rmSync(changed, { recursive: true });
    await bed?.[Symbol.asyncDispose]();
  }, 120_000);

  const create = (name: string, more: object = {}) =>
    bed.create(name, 'app.handle', {}, { durable: { sleep_after_seconds: 0 }, ...more });
  const patch = (id: string, body: object, query = '') => bed.ask('PATCH', `/api/agent/${id}${query}`, body);
  const call = async (id: string, event: object = {}) => (await bed.invoke(id, event)).body.data;
  const record = async (id: string) =>
    (await bed.ask('GET', `/api/agent/${id}`)).body.instance as { durable: object; status: string };
  const newCode = () => ({ mounts: [{ source: changed, target: '/code', readonly: true }] });

  test('a change waits for the next start, survives a kill of the service, and keeps state and alarms', async () => {
    const id = await create('waits');
    expect(await call(id, { remind: true })).toEqual(['old', 1, null, 2048]);
    const settings = {
      ...newCode(),
      env_vars: { WORD: 'w' },
      runtime_spec: { memory: 256 },
      durable: { sleep_after_seconds: 7 },
    };
    expect(await patch(id, settings)).toMatchObject({
      status: 200,
      body: {
        instance: {
          ...{ status: 'RUNNING', env_vars: { WORD: 'w' }, resources: { memory: 256 }, handler: 'app.handle' },
          durable: { is_changed: true, sleep_after_seconds: 7 },
        },
      },
    });
    await bed.killAndRestart();
    expect(await call(id)).toEqual(['old', 2, null, 2048]);
    await bed.ask('POST', `/api/agent/${id}/sleep`);
    expect(await call(id)).toEqual(['new', 3, 'w', 256]);
    expect((await record(id)).durable).not.toHaveProperty('is_changed');
    expect(await record(id)).toMatchObject({ durable: { state_version: 3, sleep_after_seconds: 7 } });
    expect((await bed.ask('GET', `/api/agent/${id}/alarms`)).body).toMatchObject([{ name: 'remind' }]);
  });

  test('with apply=now a change takes effect between two of many calls', async () => {
    const id = await create('busy');
    const answers: unknown[][] = [];
    let isDone = false;
    const callers = Array.from({ length: 8 }, async () => {
      while (!isDone) {
        const { status, body } = await bed.invoke(id, {});
        expect(body).toMatchObject({ code: 200 });
        expect(status).toBe(200);
        answers.push(body.data as unknown[]);
      }
    });
    const updated = await patch(id, newCode(), '?apply=now');
    const [word] = (await call(id)) as unknown[];
    isDone = true;
    await Promise.all(callers);
    expect([updated.status, word]).toEqual([200, 'new']);
    const numbers = answers.map(([, n]) => n as number).toSorted((one, other) => one - other);
    expect(new Set(numbers).size).toBe(numbers.length);
    const lastOld = Math.max(0, ...answers.filter(([word]) => word === 'old').map(([, n]) => n as number));
    const firstNew = Math.min(...answers.filter(([word]) => word === 'new').map(([, n]) => n as number));
    expect(firstNew).toBeGreaterThan(lastOld);
  });

  test('a handler that does not exist fails the calls until the next update, and the state stays', async () => {
    const id = await create('mended');
    await call(id);
    await patch(id, { runtime_spec: { handler: 'app.nothing' } }, '?apply=now');
    expect((await bed.invoke(id, {})).body.message).toContain('has no function nothing');
    await patch(id, { runtime_spec: { handler: 'app.handle' } }, '?apply=now');
    expect(await call(id)).toEqual(['old', 2, null, 2048]);
  });

  test('two updates add up, and a sleeping agent takes both at its wake', async () => {
    const id = await create('twice', { restart_policy: { policy: 'on-failure' } });
    await call(id);
    await bed.ask('POST', `/api/agent/${id}/sleep`);
    await patch(id, { env_vars: { WORD: 'x' }, restart_policy: null });
    await patch(id, { runtime_spec: { memory: 128, extendedHandler: { alarm: 'app.on_alarm' } } });
    expect(await record(id)).toMatchObject({ status: 'SLEEPING', extendedHandler: { alarm: 'app.on_alarm' } });
    expect(await record(id)).not.toHaveProperty('restart_policy');
    expect(await call(id)).toEqual(['old', 2, 'x', 128]);
  });

  test('an update that cannot work is refused and changes nothing', async () => {
    const id = await create('refused');
    const before = await record(id);
    const message = (text: string) => ({ body: { message: expect.stringContaining(text) } });
    expect(await patch(id, {})).toMatchObject({ status: 400, ...message('it must name one of runtime_spec, urn') });
    expect(await patch(id, { durable: false })).toMatchObject({ status: 400 });
    expect(await patch(id, { urn: 'u', runtime_spec: {} })).toMatchObject({ status: 400 });
    expect(await patch(id, { urn: 'sn:cn:yrk:default:function:0@a@b:1' })).toMatchObject({ status: 409 });
    expect(await patch(id, { runtime_spec: { memory: 1 } })).toMatchObject({ status: 400 });
    expect(await patch(id, { mounts: [{ source: '/nothing/here', target: '/code' }] })).toMatchObject({ status: 409 });
    expect(await patch(id, { env_vars: { A: { secret: 'none' } } })).toMatchObject({ status: 409 });
    expect(await patch(id, { env_vars: {} }, '?apply=later')).toMatchObject({ status: 400 });
    expect(await record(id)).toEqual(before);
    const plain = await bed.create('plain', 'app.handle');
    expect(await patch(plain, { env_vars: {} })).toMatchObject({ status: 409, ...message('is not durable') });
  });

  test('an agent of a registered function gets its entries, and follows to another version', async () => {
    const register = (directory: string, memory: number) => ({
      ...{ name: '0@durable@agent', kind: 'agent', runtime: bed.runtime, handler: 'app.handle', cpu: 500, memory },
      ...{ storageType: 'local', codePath: directory, environment: { WORD: directory === changed ? 'two' : 'one' } },
      extendedHandler: { alarm: 'app.on_alarm' },
    });
    const meta = async (method: 'POST' | 'PUT', path: string, body: object) =>
      (await bed.ask(method, `/serverless/v1/functions${path}`, body, { meta: true })).body as Record<string, unknown>;
    const first = await meta('POST', '', register(bed.codeDir, 256));
    const urn = (first.function as { functionVersionUrn: string }).functionVersionUrn;
    const body = { namespace: 'e2e', name: 'registered', urn, durable: true, env_vars: { OWN: '1' } };
    const mounts = [{ source: bed.codeDir, target: bed.codeDir, readonly: true }];
    const created = await bed.ask('POST', '/api/agent', { ...body, mounts });
    expect(created).toMatchObject({ status: 200 });
    const id = String(created.body.instance_id);
    expect(await record(id)).toMatchObject({ extendedHandler: { alarm: 'app.on_alarm' }, env_vars: { OWN: '1' } });
    expect(await call(id)).toEqual(['old', 1, 'one', 256]);
    expect(await bed.ask('POST', '/api/agent', { ...body, name: 'undurable', mounts, durable: false })).toMatchObject({
      status: 400,
      body: { message: 'invalid request body: the function.extendedHandler.alarm needs durable' },
    });
    const other = await meta('POST', '', { ...register(changed, 128), name: '0@durable@other' });
    const next = { urn: (other.function as { functionVersionUrn: string }).functionVersionUrn };
    const to = { ...next, mounts: [{ source: changed, target: changed, readonly: true }] };
    expect(await patch(id, to, '?apply=now')).toMatchObject({ status: 200, body: { instance: next } });
    expect(await call(id)).toEqual(['new', 2, 'two', 128]);
    expect(await record(id)).toMatchObject({ env_vars: { OWN: '1', WORD: 'two' } });
  });

  test('rookery deploy updates a durable agent, keeps its state, and refuses to make it another', async () => {
    const file = join(bed.codeDir, 'rookery.yaml');
    const deploy = async (fields: string) => {
      const text = `agents:\n  deployed: { code: ., runtime: ${bed.runtime}, handler: app.handle, ${fields} }\n`;
      writeFileSync(file, text);
      const { code: exit, out } = await cli(['deploy', '-f', file, '--address', bed.server.frontendUrl]);
      return { exit, out };
    };
    const durable = 'durable: { sleep_after_seconds: 300 }';
    expect(await deploy(`memory: 256, ${durable}`)).toMatchObject({ exit: 0, out: expect.stringContaining('created') });
    const { body } = await bed.ask('GET', '/api/agent?name=deployed&limit=1');
    const id = (body.instances as { instance_id: string }[])[0]?.instance_id ?? '';
    expect(await call(id)).toEqual(['old', 1, null, 256]);
    await bed.ask('POST', `/api/agent/${id}/sleep`);
    expect(await deploy(`memory: 256, ${durable}`)).toMatchObject({ out: expect.stringContaining('unchanged') });
    expect(await deploy(`memory: 128, ${durable}, on: { alarm: app.on_alarm }`)).toMatchObject({
      exit: 0,
      out: expect.stringMatching(/updated \(memory\): .*, state kept/),
    });
    expect(await call(id)).toEqual(['old', 2, null, 128]);
    expect(await record(id)).toMatchObject({ extendedHandler: { alarm: 'app.on_alarm' } });
    expect(await deploy('memory: 128')).toMatchObject({
      exit: 1,
      out: expect.stringContaining('would lose its state'),
    });
    expect(await call(id)).toEqual(['old', 3, null, 128]);
  });
});

import { existsSync } from 'node:fs';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Bed } from './agents.ts';

const WAIT = { timeout: 60_000, interval: 50 };

const PYTHON = `
import time
def handle(event, context):
    op = event.get("op")
    state = context.state
    if op == "wake":
        return dict(context.wake, waking=context.is_waking)
    if op == "hang":
        time.sleep(600)
    state["n"] = state.get("n", 0) + 1
    print("count", state["n"], flush=True)
    return state["n"]
`;

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'app.py': PYTHON });
}, 120_000);
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
}, 120_000);

const create = (name: string, durable: unknown = { sleep_after_seconds: 0 }) =>
  bed.create(name, 'app.handle', {}, { durable });
const count = async (id: string) => (await bed.invoke(id)).body.data;
const recordOf = async (id: string) =>
  (await bed.ask('GET', `/api/agent/${id}`)).body.instance as Record<string, unknown>;
const sleep = (id: string) => bed.ask('POST', `/api/agent/${id}/sleep`);
const isProcess = (pid: unknown) => existsSync(`/proc/${String(pid)}`);

test('an agent that sleeps has no process, and its next call starts it with its state', {
  timeout: 120_000,
}, async () => {
  const id = await create('sleeper');
  expect([await count(id), await count(id)]).toEqual([1, 2]);
  const { sandbox_id: pid } = await recordOf(id);
  expect(isProcess(pid)).toBe(true);
  expect(await sleep(id)).toMatchObject({ status: 200, body: { instance: { status: 'SLEEPING', sandbox_id: '' } } });
  expect(isProcess(pid)).toBe(false);
  expect(await sleep(id)).toMatchObject({ status: 200, body: { instance: { status: 'SLEEPING' } } });
  const asleep = await recordOf(id);
  expect(asleep).toMatchObject({
    status: 'SLEEPING',
    restarts: 0,
    durable: { wakes: 0, slept_at: expect.any(String) },
  });
  const log = await request(`${bed.server.frontendUrl}/api/agent/${id}/logs`);
  expect(await log.body.text()).toContain('count 2');
  expect(await bed.ask('GET', `/api/agent/${id}/stats`)).toMatchObject({ body: { memory_bytes: 0, asleep: true } });
  expect(await bed.ask('GET', '/api/agent?name=sleeper&status=SLEEPING')).toMatchObject({
    body: { instances: [{ instance_id: id }] },
  });
  const { durable } = asleep as { durable: { slept_at: string } };
  expect((await bed.invoke(id, { op: 'wake' })).body.data).toMatchObject({
    ...{ waking: true, reason: 'call', slept_at: durable.slept_at, state_version: 2 },
  });
  expect(await count(id)).toBe(3);
  expect(await recordOf(id)).toMatchObject({ status: 'RUNNING', restarts: 0, durable: { wakes: 1 } });
});

test('calls of a sleeping agent at the same moment share one start, and their answers say so', {
  timeout: 120_000,
}, async () => {
  const id = await create('shared');
  await count(id);
  await sleep(id);
  const url = `${bed.server.frontendUrl}/api/agent/${id}/invoke`;
  const answers = await Promise.all(Array.from({ length: 20 }, () => request(url, { method: 'POST', body: '{}' })));
  const counts = await Promise.all(answers.map(async ({ body }) => ((await body.json()) as { data: number }).data));
  expect(counts.toSorted((one, other) => one - other)).toEqual(Array.from({ length: 20 }, (_, i) => i + 2));
  expect(answers.some(({ headers }) => headers['x-rookery-woke'] === 'call')).toBe(true);
  expect(await recordOf(id)).toMatchObject({ status: 'RUNNING', durable: { wakes: 1 } });
});

test('a request with X-Rookery-Wake: never does not wake a sleeping agent', { timeout: 120_000 }, async () => {
  const id = await create('barred');
  await count(id);
  await sleep(id);
  const barred = { headers: { 'x-rookery-wake': 'never' } };
  const asleep = { status: 409, body: { message: expect.stringContaining(`instance ${id} is asleep`) } };
  expect(await bed.invoke(id, {}, barred)).toMatchObject(asleep);
  expect(await bed.ask('POST', `/api/agent/${id}/exec`, { command: ['true'] }, barred)).toMatchObject(asleep);
  expect(await bed.ask('GET', `/api/agent/${id}/files/list?path=/`, undefined, barred)).toMatchObject(asleep);
  expect(await bed.invoke(id, {}, { headers: { 'x-rookery-wake': 'always' } })).toMatchObject({ status: 400 });
  expect(await recordOf(id)).toMatchObject({ status: 'SLEEPING' });
  expect(await bed.ask('POST', `/api/agent/${id}/exec`, { command: ['true'] })).toMatchObject({ status: 200 });
  expect((await bed.invoke(id, {}, barred)).body.data).toBe(2);
});

test('a sleeping agent stays asleep when the service is killed, and an agent without use falls asleep', {
  timeout: 120_000,
}, async () => {
  const id = await create('kept');
  const idle = await create('idle', { sleep_after_seconds: 1 });
  expect(await count(idle)).toBe(1);
  await count(id);
  const { sandbox_id: pid } = await recordOf(id);
  await sleep(id);
  await vi.waitFor(async () => expect(await recordOf(idle)).toMatchObject({ status: 'SLEEPING' }), WAIT);
  await bed.killAndRestart();
  expect(await recordOf(id)).toMatchObject({ status: 'SLEEPING' });
  expect(isProcess(pid)).toBe(false);
  expect([await count(id), await count(idle)]).toEqual([2, 2]);
  await vi.waitFor(async () => expect(await recordOf(idle)).toMatchObject({ status: 'SLEEPING' }), WAIT);
  await sleep(id);
  expect(await bed.ask('POST', `/api/agent/${id}/wake`)).toMatchObject({
    status: 200,
    body: { woken: true, instance: { status: 'RUNNING' } },
  });
  await sleep(id);
  expect(await bed.ask('DELETE', `/api/agent/${id}`)).toMatchObject({ status: 200 });
  expect(await bed.ask('GET', `/api/agent/${id}`)).toMatchObject({ status: 404 });
});

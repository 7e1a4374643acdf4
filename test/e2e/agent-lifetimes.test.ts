import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Bed } from './agents.ts';

const CODE = `
import os, subprocess, threading, time
state = {"ticks": 0, "gap": 0.0}
def tick():
    last = time.monotonic()
    while True:
        time.sleep(0.01)
        now = time.monotonic()
        state["gap"] = max(state["gap"], now - last)
        state["ticks"] += 1
        last = now
threading.Thread(target=tick, daemon=True).start()
child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
def handle(event, context):
    return dict(state, pid=os.getpid(), child=child.poll())
`;
const WAIT = { timeout: 60_000, interval: 100 };

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'app.py': CODE });
}, 60_000);
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
}, 60_000);

const create = (name: string, more: object = {}) =>
  bed.create(name, 'app.handle', {}, { env_vars: { LIFETIME_MARK: name }, ...more });
const recordOf = async (id: string) =>
  (await bed.ask('GET', `/api/agent/${id}`)).body.instance as Record<string, string>;
const askValue = async (id: string) => (await bed.invoke(id)).body.data as Record<string, number>;

/** Returns the processes of this machine whose environment names the agent. */
function processesOf(name: string): readonly string[] {
  return readdirSync('/proc').filter(pid => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`LIFETIME_MARK=${name}\0`);
    } catch {
      return false;
    }
  });
}

const untilGone = async (id: string, name: string) => {
  await vi.waitFor(async () => expect((await bed.ask('GET', `/api/agent/${id}`)).status).toBe(404), WAIT);
  const goneMs = Date.now();
  await vi.waitFor(() => expect(processesOf(name)).toEqual([]), WAIT);
  return goneMs;
};

test('an agent ends with its time to live, with all its processes, also when the service is killed before', async () => {
  const long = await create('long', { ttl_seconds: 600, labels: { kept: 'yes' } });
  const short = await create('short', { ttl_seconds: 10 });
  const before = { short: await recordOf(short), long: await recordOf(long) };
  expect(before.long).toMatchObject({ labels: { kept: 'yes' }, on_expiry: 'delete' });
  expect(processesOf('short')).not.toEqual([]);
  await bed.killAndRestart();
  const goneMs = await untilGone(short, 'short');
  expect(goneMs).toBeGreaterThanOrEqual(Date.parse(before.short.expires_at as string));
  const after = await recordOf(long);
  expect([after.expires_at, after.start_time]).toEqual([before.long.expires_at, before.long.start_time]);
  const { body } = await bed.ask('PUT', `/api/agent/${long}/ttl`, { ttl_seconds: 1 });
  expect(Date.parse((body.instance as Record<string, string>).expires_at as string)).toBeLessThan(
    Date.parse(after.expires_at as string),
  );
  await untilGone(long, 'long');
}, 120_000);

test('a paused agent stands still, is refused, survives the service and goes on with its memory', async () => {
  const id = await create('paused');
  const first = await askValue(id);
  const paused = await bed.ask('POST', `/api/agent/${id}/pause`);
  expect(paused).toMatchObject({
    status: 200,
    body: { instance: { status: 'PAUSED', paused_at: expect.any(String) } },
  });
  const fromMs = performance.now();
  expect((await bed.invoke(id)).body.message).toContain(`instance ${id} is paused`);
  const exec = await bed.ask('POST', `/api/agent/${id}/exec`, { command: 'true' });
  expect(exec).toMatchObject({ status: 409, body: { message: expect.stringContaining('is paused') } });
  expect((await bed.ask('POST', `/api/agent/${id}/pause`)).status).toBe(409);
  await bed.killAndRestart();
  expect(await recordOf(id)).toMatchObject({ status: 'PAUSED', restarts: 0 });
  const stoodMs = performance.now() - fromMs;
  expect(await bed.ask('POST', `/api/agent/${id}/resume`)).toMatchObject({ status: 200, body: { resumed: true } });
  const next = await askValue(id);
  expect(next).toMatchObject({ pid: first.pid, child: null });
  expect(next.ticks).toBeGreaterThan(first.ticks as number);
  expect((next.gap as number) * 1000).toBeGreaterThanOrEqual(stoodMs);
  expect((await bed.ask('POST', `/api/agent/${id}/resume`)).body.resumed).toBe(false);
}, 120_000);

test('the delete of a paused agent leaves no process', async () => {
  const id = await create('ended');
  await askValue(id);
  expect((await bed.ask('POST', `/api/agent/${id}/pause`)).status).toBe(200);
  expect((await bed.ask('DELETE', `/api/agent/${id}?grace=0`)).status).toBe(200);
  await untilGone(id, 'ended');
}, 60_000);

test('an agent pauses at its end if its create says so', async () => {
  const id = await create('sleeps', { ttl_seconds: 1, on_expiry: 'pause' });
  await vi.waitFor(async () => expect(await recordOf(id)).toMatchObject({ status: 'PAUSED' }), WAIT);
  expect(await bed.ask('GET', '/api/agent?label=a=b&status=PAUSED')).toMatchObject({ body: { instances: [] } });
  expect((await bed.ask('DELETE', `/api/agent/${id}?grace=0`)).status).toBe(200);
}, 60_000);

import { expect, test, vi } from 'vitest';
import { gate, Harness, specOf, TENANT } from './harness.ts';

const HOUR_MS = 3_600_000;
const START_MS = 1_700_000_000_000;

/** A clock that a test moves. Timers run on the real clock. */
function clock() {
  const time = { ms: START_MS };
  return { time, now: () => time.ms };
}

const idsOf = async (harness: Harness, query: object = {}) =>
  (await harness.agents.list({ tenant: TENANT, limit: 100, cursor: null, ...query })).instances.map(({ id }) => id);
const untilGone = (harness: Harness, id: string) =>
  vi.waitFor(
    async () => {
      await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
      expect(harness.driver.instanceIds).not.toContain(id);
    },
    { timeout: 20_000 },
  );

test('an agent is deleted when its time to live is over, and not before', async () => {
  await using harness = await Harness.open();
  const created = await harness.agents.create({ spec: specOf('a', { ttlMs: 300 }) });
  expect(created.expiresAtMs).toBe(created.startedAtMs + 300);
  await untilGone(harness, created.id);
  expect(Date.now()).toBeGreaterThanOrEqual(created.expiresAtMs);
});

test('an agent without a time to live has no end', async () => {
  await using harness = await Harness.open();
  expect(await harness.agents.get(TENANT, await harness.create('a'))).toMatchObject({
    ...{ expiresAtMs: 0, onExpiry: 'delete', pausedAtMs: 0, labels: {} },
  });
});

test('setExpiry counts from now, in both directions, and onlyLater never shortens', async () => {
  const { time, now } = clock();
  await using harness = await Harness.open({ now });
  const id = await harness.create('a', { ttlMs: HOUR_MS });
  time.ms += 1000;
  const set = async (ttlMs: number, onlyLater?: boolean) =>
    (await harness.agents.setExpiry(TENANT, id, { ttlMs, ...(onlyLater && { onlyLater }) })).expiresAtMs - time.ms;
  expect(await set(2 * HOUR_MS)).toBe(2 * HOUR_MS);
  expect(await set(HOUR_MS)).toBe(HOUR_MS);
  expect(await set(1000, true)).toBe(HOUR_MS);
  expect(await set(3 * HOUR_MS, true)).toBe(3 * HOUR_MS);
  expect((await harness.agents.setExpiry(TENANT, id, { ttlMs: 0 })).expiresAtMs).toBe(0);
  await harness.agents.setExpiry(TENANT, id, { ttlMs: HOUR_MS, onlyLater: true });
  expect((await harness.agents.get(TENANT, id)).expiresAtMs).toBe(0);
});

test('a shortened time to live ends the agent, and a lengthened one keeps it', async () => {
  const { time, now } = clock();
  await using harness = await Harness.open({ now });
  const long = await harness.create('a', { ttlMs: HOUR_MS });
  const short = await harness.create('b', { ttlMs: 500 });
  await harness.agents.setExpiry(TENANT, short, { ttlMs: HOUR_MS });
  await harness.agents.setExpiry(TENANT, long, { ttlMs: 600 });
  time.ms += 1000;
  await untilGone(harness, long);
  expect((await harness.agents.get(TENANT, short)).status).toBe('RUNNING');
});

test('the next server keeps the end of an agent, and ends at once what is overdue', async () => {
  const { time, now } = clock();
  await using harness = await Harness.open({ now });
  const id = await harness.create('a', { ttlMs: HOUR_MS });
  const overdue = await harness.create('b', { ttlMs: 1000 });
  const { expiresAtMs, startedAtMs } = await harness.agents.get(TENANT, id);
  await harness.closeServer();
  time.ms += 2000;
  harness.newServer();
  await harness.agents.start();
  await harness.instances.start();
  await untilGone(harness, overdue);
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ expiresAtMs, startedAtMs, status: 'RUNNING' });
});

test('a restart keeps the end', async () => {
  const { time, now } = clock();
  await using harness = await Harness.open({ now });
  const id = await harness.create('a', { ttlMs: HOUR_MS });
  time.ms += 1000;
  expect((await harness.agents.restart(TENANT, id)).expiresAtMs).toBe(START_MS + HOUR_MS);
});

test('an agent whose removal fails at its end is removed later', async () => {
  await using harness = await Harness.open({ reconcileIntervalMs: 50 });
  harness.driver.faults.removeFailures = 1;
  await untilGone(harness, await harness.create('a', { ttlMs: 100 }));
});

test('a paused agent keeps its state, refuses its use at once and goes on after the resume', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  expect(await harness.value(id)).toBe(1);
  const paused = await harness.agents.pause(TENANT, id);
  expect(paused).toMatchObject({ status: 'PAUSED', restarts: 0 });
  expect(paused.pausedAtMs).toBeGreaterThan(0);
  expect(harness.driver.isPaused(id)).toBe(true);
  const refusal = { code: 'failed_precondition', message: expect.stringContaining(`instance ${id} is paused`) };
  await expect(harness.invoke(id)).rejects.toMatchObject(refusal);
  await expect(harness.agents.access(TENANT, id)).rejects.toMatchObject(refusal);
  await expect(harness.agents.stats(TENANT, id)).rejects.toMatchObject(refusal);
  await expect(harness.agents.pause(TENANT, id)).rejects.toMatchObject({ code: 'already_exists' });
  const { instance, resumed } = await harness.agents.resume(TENANT, id);
  expect({ ...instance, resumed }).toMatchObject({ status: 'RUNNING', pausedAtMs: 0, restarts: 0, resumed: true });
  expect(await harness.value(id)).toBe(2);
  expect((await harness.agents.resume(TENANT, id)).resumed).toBe(false);
});

test('concurrent resumes share one', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.agents.pause(TENANT, id);
  const all = await Promise.all([1, 2, 3].map(() => harness.agents.resume(TENANT, id)));
  expect(all.map(({ instance }) => instance.status)).toEqual(['RUNNING', 'RUNNING', 'RUNNING']);
  expect(await harness.value(id, 'x')).toBe('x');
});

test('an open call ends with the reason when its agent is paused', async () => {
  await using harness = await Harness.open();
  const begun = gate();
  harness.driver.handlers.set('wait', async (_event, { signal }) => {
    begun.open();
    await new Promise(resolve => signal.addEventListener('abort', resolve, { once: true }));
  });
  const id = await harness.create('a', { handler: 'wait' });
  const call = harness.invoke(id);
  call.catch(() => undefined);
  await begun.opened;
  await harness.agents.pause(TENANT, id);
  await expect(call).rejects.toMatchObject({ code: 'unavailable', message: `instance ${id} is paused` });
});

test('the time of a paused agent stands still', async () => {
  const { time, now } = clock();
  await using harness = await Harness.open({ now });
  const id = await harness.create('a', { ttlMs: HOUR_MS });
  time.ms += 1000;
  await harness.agents.pause(TENANT, id);
  time.ms += 10 * HOUR_MS;
  await harness.restartServer();
  expect((await harness.agents.get(TENANT, id)).status).toBe('PAUSED');
  expect((await harness.agents.resume(TENANT, id)).instance.expiresAtMs).toBe(time.ms + HOUR_MS - 1000);
  await harness.agents.pause(TENANT, id);
  expect((await harness.agents.setExpiry(TENANT, id, { ttlMs: 5000 })).status).toBe('PAUSED');
  time.ms += HOUR_MS;
  expect((await harness.agents.resume(TENANT, id)).instance.expiresAtMs).toBe(time.ms + 5000);
});

test('an agent that pauses at its end gets its whole time again with the resume', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { ttlMs: 300, onExpiry: 'pause' });
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('PAUSED'));
  const resumedMs = Date.now();
  const { instance, resumed } = await harness.agents.resume(TENANT, id, { ttlMs: HOUR_MS, onlyLater: true });
  expect(resumed).toBe(true);
  expect(instance.expiresAtMs).toBeGreaterThanOrEqual(resumedMs + HOUR_MS);
});

test('the next server keeps a paused agent paused, with its capacity, and completes an interrupted pause', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  expect(await harness.value(id)).toBe(1);
  await harness.agents.pause(TENANT, id);
  const handle = (await harness.driver.list())[0]?.handle;
  if (handle === undefined) throw new Error('no sandbox');
  await harness.closeServer();
  await harness.driver.resume(handle);
  await harness.restartServer();
  expect(harness.driver.isPaused(id)).toBe(true);
  await harness.agents.resume(TENANT, id);
  expect(await harness.value(id)).toBe(2);
});

test('a paused agent whose sandbox has ended is FAILED after the next reconciler pass', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.agents.pause(TENANT, id);
  harness.driver.kill(id);
  await harness.instances.reconcile();
  expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED');
});

test('a paused agent can be deleted and restarted', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  await harness.value(id);
  await harness.agents.pause(TENANT, id);
  expect(await harness.agents.restart(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 1, pausedAtMs: 0 });
  expect(await harness.value(id)).toBe(1);
  await harness.agents.pause(TENANT, id);
  await harness.agents.delete(TENANT, id, 0);
  expect(harness.driver.instanceIds).toEqual([]);
});

test('an agent continues after a pause that its driver cannot do', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  harness.driver.faults.pauseFailures = 1;
  await expect(harness.agents.pause(TENANT, id)).rejects.toMatchObject({ message: 'the pause failed on demand' });
  expect((await harness.agents.get(TENANT, id)).status).toBe('RUNNING');
  expect(await harness.value(id)).toBe(1);
});

test('lists select by all given labels, whatever their characters are', async () => {
  await using harness = await Harness.open();
  const odd = { 'b%20c': 'a"\\\n[]', 'ü\u0000': '%_' };
  const a = await harness.create('a', { labels: { ...odd, app: 'x' } });
  const b = await harness.create('b', { labels: { app: 'x' } });
  const c = await harness.create('c', { labels: { APP: 'X', x: 'app' } });
  expect(new Set(await idsOf(harness, { labels: { app: 'x' } }))).toEqual(new Set([a, b]));
  expect(await idsOf(harness, { labels: { app: 'x', ...odd } })).toEqual([a]);
  expect(await idsOf(harness, { labels: { APP: 'X' } })).toEqual([c]);
  expect(await idsOf(harness, { labels: { app: 'xx' } })).toEqual([]);
  expect((await harness.agents.get(TENANT, a)).labels).toEqual({ ...odd, app: 'x' });
});

test('lists select by template, by several states and by start, and pages keep the order of starts', async () => {
  const { time, now } = clock();
  await using harness = await Harness.open({ now });
  const ids: string[] = [];
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    ids.push(await harness.create(name, name === 'a' ? {} : { template: name === 'b' ? 'other' : 'base' }));
    if (name !== 'c') time.ms += 10;
  }
  await harness.agents.pause(TENANT, ids[4] as string);
  expect(new Set(await idsOf(harness, { template: null }))).toEqual(new Set(ids.slice(1)));
  expect(await idsOf(harness, { template: 'other' })).toEqual([ids[1]]);
  expect(await idsOf(harness, { status: ['PAUSED', 'FAILED'] })).toEqual([ids[4]]);
  expect(new Set(await idsOf(harness, { startedAfterMs: START_MS + 20 }))).toEqual(new Set(ids.slice(2)));
  for (const order of ['newest', 'oldest', 'id'] as const) {
    const whole = await idsOf(harness, { order });
    expect(new Set(whole)).toEqual(new Set(ids));
    const pages: string[] = [];
    for (let cursor: string | null = null; ; ) {
      const page = await harness.agents.list({ tenant: TENANT, limit: 1, cursor, order });
      pages.push(...page.instances.map(({ id }) => id));
      cursor = page.nextCursor;
      if (cursor === null) break;
    }
    expect(pages).toEqual(whole);
  }
  const newest = await idsOf(harness, { order: 'newest' });
  expect([newest[0], newest[4]]).toEqual([ids[4], ids[0]]);
  await expect(idsOf(harness, { order: 'newest', cursor: 'wrong' })).rejects.toMatchObject({ code: 'invalid_request' });
});

test('an agent that nothing uses ends after its idle time, and a running call or an open stream is use', async () => {
  await using harness = await Harness.open();
  const { opened, open } = gate();
  harness.driver.handlers.set('wait', async () => await opened);
  const busy = await harness.create('busy', { handler: 'wait', idleMs: 2000 });
  const call = harness.invoke(busy);
  const streaming = await harness.create('streaming', { idleMs: 2000 });
  const ending = new AbortController();
  const access = await harness.agents.access(TENANT, streaming);
  const request = { argv: ['cat'], workingDir: '', env: {}, terminal: null };
  const command = await access.openExec(request, ending.signal);
  command.ended.catch(() => undefined);
  await untilGone(harness, await harness.create('idle', { idleMs: 2500 }));
  expect((await harness.agents.get(TENANT, busy)).status).toBe('RUNNING');
  expect((await harness.agents.get(TENANT, streaming)).status).toBe('RUNNING');
  open();
  await call;
  command.kill();
  for (const id of [busy, streaming]) await untilGone(harness, id);
});

test('an idle agent pauses if its create says so, and its idle time begins again with the resume', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { idleMs: 200, onExpiry: 'pause' });
  const untilPaused = () =>
    vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('PAUSED'));
  await untilPaused();
  expect((await harness.agents.resume(TENANT, id)).resumed).toBe(true);
  await untilPaused();
  await harness.agents.restart(TENANT, id);
  await untilPaused();
});

test('the next server ends an agent that nothing uses', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { idleMs: 2000 });
  await harness.restartServer();
  await untilGone(harness, id);
});

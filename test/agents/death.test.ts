import { expect, test, vi } from 'vitest';
import { gate, Harness, TENANT } from './harness.ts';

const statusOf = async ({ agents }: Harness, id: string) => {
  const { status, statusReason } = await agents.get(TENANT, id);
  return { status, statusReason };
};

test('when an instance dies every running and waiting call ends at once and says how', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('held', () => new Promise(() => undefined));
  const id = await harness.create('a', { handler: 'held' });
  const calls = [1, 2, 3].map(() =>
    expect(harness.invoke(id)).rejects.toMatchObject({
      code: 'unavailable',
      message: 'instance exited: signal SIGKILL (out of memory)',
    }),
  );
  harness.driver.kill(id, { signal: 'SIGKILL', oomKilled: true });
  await Promise.all(calls);
  expect(harness.agents.openCalls).toBe(0);
});

test('an instance that ended by itself is FAILED with the reason, keeps its name, and is not found by calls', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'exit' });
  await expect(harness.invoke(id, 3)).rejects.toThrow('instance exited: exit code 3');
  await vi.waitFor(async () =>
    expect(await statusOf(harness, id)).toEqual({ status: 'FAILED', statusReason: 'instance exited: exit code 3' }),
  );
  await expect(harness.invoke(id)).rejects.toMatchObject({
    code: 'not_found',
    message: expect.stringMatching(`^instance not found: ${id}: it is FAILED \\(instance exited: exit code 3\\)`),
  });
  await expect(harness.create('a')).rejects.toMatchObject({ code: 'already_exists', body: { instance_id: id } });
  await harness.agents.delete(TENANT, id, null);
  await harness.create('a');
});

test('an idle instance that dies is noticed without a call', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.kill(id, { code: 1 });
  await vi.waitFor(async () => expect((await statusOf(harness, id)).status).toBe('FAILED'));
  expect(harness.agents.liveInstances).toBe(0);
});

test('one death does not disturb other instances', async () => {
  await using harness = await Harness.open();
  const held = gate();
  harness.driver.handlers.set('held', () => held.opened);
  const [a, b] = [await harness.create('a', { handler: 'held' }), await harness.create('b', { handler: 'held' })];
  const other = harness.invoke(b);
  const own = expect(harness.invoke(a)).rejects.toThrow('instance exited');
  harness.driver.kill(a);
  await own;
  held.open();
  expect((await other).ok).toBe(true);
});

test('a lost connection to a living sandbox is made again; its calls fail, later ones succeed', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('held', (event, { state, signal }) => {
    if (event !== 'hold') return state.get('kept');
    state.set('kept', 7);
    running.open();
    return new Promise((_, reject) => signal.addEventListener('abort', reject));
  });
  const running = gate();
  const id = await harness.create('a', { handler: 'held' });
  const lost = expect(harness.invoke(id, 'hold')).rejects.toMatchObject({
    code: 'unavailable',
    message: 'the connection to the instance was lost',
  });
  await running.opened;
  harness.driver.dropConnections(id);
  await lost;
  expect(await harness.value(id, 'ask')).toBe(7);
  expect((await statusOf(harness, id)).status).toBe('RUNNING');
});

test('calls that come while a connection is made again wait for it', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  for (let round = 1; round <= 3; round++) {
    harness.driver.dropConnections(id);
    // The first may still go out over the lost connection.
    await harness.invoke(id).catch(() => undefined);
    expect((await harness.invoke(id)).ok).toBe(true);
  }
});

test('a connection that is lost again and again is given up', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await vi.waitFor(
    async () => {
      if (harness.driver.runningIds.length > 0) harness.driver.dropConnections(id);
      expect((await statusOf(harness, id)).status).toBe('FAILED');
    },
    { timeout: 10_000, interval: 20 },
  );
  expect(harness.driver.runningIds).toEqual([]);
});

test('of an instance on a lost machine nothing is known: calls say so, and it is neither FAILED nor ended; it serves again when it is back', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  const back = gate();
  harness.driver.faults.unknown = 'the node n7 does not answer';
  harness.driver.fallSilent(id, back.opened);
  harness.driver.dropConnections(id);
  await vi.waitFor(() => expect(harness.invoke(id)).rejects.toThrow('the node n7 does not answer'), {
    timeout: 20_000,
  });
  expect(await statusOf(harness, id)).toEqual({ status: 'RUNNING', statusReason: 'the node n7 does not answer' });
  expect(harness.driver.runningIds).toEqual([id]);
  await expect(harness.create('a')).rejects.toMatchObject({ code: 'already_exists' });
  back.open();
  harness.driver.faults.unknown = undefined;
  await vi.waitFor(async () => expect((await harness.invoke(id)).ok).toBe(true), { timeout: 20_000 });
  expect(await statusOf(harness, id)).toEqual({ status: 'RUNNING', statusReason: '' });
}, 60_000);

test('an instance of which its driver knows nothing takes calls as long as it answers, and its record and the list say why', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  const other = await harness.create('b');
  harness.driver.kill(other, { signal: 'SIGKILL' });
  await vi.waitFor(async () => expect((await statusOf(harness, other)).status).toBe('FAILED'), { timeout: 20_000 });
  harness.driver.faults.unknown = 'the node n7 does not answer';
  expect(await harness.value(id)).toBe(1);
  const { instances } = await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null });
  expect(Object.fromEntries(instances.map(({ spec, statusReason }) => [spec.name, statusReason]))).toEqual({
    a: 'the node n7 does not answer',
    b: 'instance exited: signal SIGKILL',
  });
  harness.driver.faults.unknown = undefined;
  expect((await statusOf(harness, id)).statusReason).toBe('');
});

test('one of which nothing was known is FAILED as soon as its end is known', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.faults.unknown = 'the node n7 does not answer';
  harness.driver.fallSilent(id, new Promise(() => undefined));
  harness.driver.dropConnections(id);
  await vi.waitFor(() => expect(harness.invoke(id)).rejects.toThrow('the node n7'), { timeout: 20_000 });
  harness.driver.kill(id, { signal: 'SIGKILL' });
  await vi.waitFor(async () => expect((await statusOf(harness, id)).status).toBe('FAILED'), { timeout: 20_000 });
  expect((await statusOf(harness, id)).statusReason).toBe('instance exited: signal SIGKILL');
}, 60_000);

test('one of which nothing was known is given up when its driver knows that it runs and it stays silent', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.faults.unknown = 'the node n7 does not answer';
  harness.driver.becomeUnreachable(id);
  await vi.waitFor(() => expect(harness.invoke(id)).rejects.toThrow('the node n7'), { timeout: 20_000 });
  harness.driver.faults.unknown = undefined;
  await vi.waitFor(async () => expect((await statusOf(harness, id)).status).toBe('FAILED'), { timeout: 30_000 });
  expect(harness.driver.runningIds).toEqual([]);
}, 60_000);

test('a sandbox that runs but cannot be reached is stopped, and the instance is FAILED', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.becomeUnreachable(id);
  await expect(harness.invoke(id)).rejects.toThrow('the connection to the instance was lost');
  await vi.waitFor(async () =>
    expect(await statusOf(harness, id)).toEqual({
      status: 'FAILED',
      statusReason: 'the connection to the instance was lost',
    }),
  );
  expect(harness.driver.runningIds).toEqual([]);
  expect(harness.driver.instanceIds).toEqual([id]);
});

test('an instance that cannot be reached while its driver does not answer fails its calls in bounded time', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('held', () => new Promise(() => undefined));
  const id = await harness.create('a', { handler: 'held' });
  const failed = expect(harness.invoke(id)).rejects.toMatchObject({
    code: 'unavailable',
    message: 'the connection to the instance was lost',
  });
  harness.driver.faults.away = 'gone fishing';
  harness.driver.becomeUnreachable(id);
  await failed;
  await vi.waitFor(async () => expect((await statusOf(harness, id)).status).toBe('FAILED'));
  harness.driver.faults.away = undefined;
  // What could not be stopped then is stopped by the next look at everything.
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([]);
});

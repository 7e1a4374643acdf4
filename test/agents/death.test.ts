import { expect, test, vi } from 'vitest';
import { gate, Harness, TENANT } from './harness.ts';

const statusOf = async ({ agents }: Harness, id: string) => {
  const { status, statusReason } = await agents.get(TENANT, id);
  return { status, statusReason };
};

test('running and waiting calls fail at once with the exit when their instance dies', async () => {
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

test('an instance that exits is FAILED with the reason, keeps its name and rejects calls', async () => {
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

test('the service notices the death of an idle instance without a call', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.kill(id, { code: 1 });
  await vi.waitFor(async () => expect((await statusOf(harness, id)).status).toBe('FAILED'));
  expect(harness.agents.liveInstances).toBe(0);
});

test('the death of an instance does not affect other instances', async () => {
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

test('the service reconnects to a living sandbox when a connection breaks; only its open calls fail', async () => {
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

test('calls wait for the new connection when they arrive during a reconnect', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  for (let round = 1; round <= 3; round++) {
    harness.driver.dropConnections(id);
    // The first call may still use the lost connection.
    await harness.invoke(id).catch(() => undefined);
    expect((await harness.invoke(id)).ok).toBe(true);
  }
});

test('an instance becomes FAILED when its connection breaks repeatedly', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await vi.waitFor(
    async () => {
      if (harness.driver.runningIds.length > 0) harness.driver.dropConnections(id);
      expect((await statusOf(harness, id)).status).toBe('FAILED');
    },
    { timeout: 30_000, interval: 20 },
  );
  expect(harness.driver.runningIds).toEqual([]);
});

test('an instance on a lost machine stays RUNNING, fails calls with the reason and serves after its return', async () => {
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

test('an instance takes calls while its driver reports its state as unknown, and its record names the reason', async () => {
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

test('an instance in an unknown state becomes FAILED as soon as its exit is known', async () => {
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

test('an instance becomes FAILED when its driver reports that it runs again but it stays silent', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.faults.unknown = 'the node n7 does not answer';
  harness.driver.becomeUnreachable(id);
  await vi.waitFor(() => expect(harness.invoke(id)).rejects.toThrow('the node n7'), { timeout: 20_000 });
  harness.driver.faults.unknown = undefined;
  await vi.waitFor(async () => expect((await statusOf(harness, id)).status).toBe('FAILED'), { timeout: 30_000 });
  expect(harness.driver.runningIds).toEqual([]);
}, 60_000);

test('the service stops a running sandbox and marks it FAILED when it cannot be reached', async () => {
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

test('an exit that is reported only when the service stops the sandbox is the reason', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.becomeUnreachable(id);
  harness.driver.stop = async () => harness.driver.kill(id, { code: 7, signal: null });
  await expect(harness.invoke(id)).rejects.toThrow('instance exited: exit code 7');
  await vi.waitFor(async () =>
    expect(await statusOf(harness, id)).toEqual({
      status: 'FAILED',
      statusReason: 'instance exited: exit code 7',
    }),
  );
});

test('calls fail in bounded time when neither the instance nor its driver answers', async () => {
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
  // The next reconciler pass stops the sandbox that could not be stopped then.
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([]);
});

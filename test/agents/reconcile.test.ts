import { randomUUID } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import { NO_SANDBOX } from '../../src/core/instance.ts';
import type { InstanceChange } from '../../src/instances/changes.ts';
import { toSandboxSpec } from '../../src/instances/sandbox-spec.ts';
import { Channel } from '../../src/runtime/channel.ts';
import { insertInstance, updateInstance } from '../../src/storage/queries/instances.ts';
import { storedInstance } from '../parts/stored-instance.ts';
import { gate, Harness, specOf, TENANT } from './harness.ts';

const RULES = { maxProcesses: 10, network: 'host', requireIsolation: false } as const;

/** Starts a sandbox of an earlier server whose runtime was never initialized. */
function startSandbox(harness: Harness, id: string) {
  const spec = toSandboxSpec(id, 'secret', { ...specOf(id), env: {}, secretVariables: [] }, RULES);
  return harness.driver.start(spec, new AbortController().signal);
}

/** Writes the record that an earlier server had stored before it was killed. */
async function writeRow(
  harness: Harness,
  status: 'CREATING' | 'RUNNING' | 'STOPPING',
  restarts = 0,
  idempotency: { key: string; requestHash: string } | undefined = undefined,
): Promise<string> {
  const id = randomUUID();
  const spec = specOf(id);
  await insertInstance(
    harness.database,
    storedInstance({ id, status, epoch: restarts + 1, nodeId: 'node-1', createdAtMs: 1, spec: JSON.stringify(spec) }),
    { namespace: spec.namespace, name: spec.name, idempotency },
  );
  return id;
}

test('a new server adopts 100 live instances with the memory of their handlers', async () => {
  await using harness = await Harness.open();
  const ids = await Promise.all(Array.from({ length: 100 }, (_, n) => harness.create(`a${n}`, { handler: 'count' })));
  await Promise.all(ids.map(id => harness.value(id)));
  await harness.restartServer();
  expect(harness.agents.liveInstances).toBe(100);
  expect(harness.instances.readiness()).toEqual({});
  expect(await Promise.all(ids.map(id => harness.value(id)))).toEqual(ids.map(() => 2));
  expect(harness.driver.starts).toHaveLength(100);
});

test('a server watches, deletes and restarts an adopted instance like any other', async () => {
  await using harness = await Harness.open();
  const [a, b, c] = [await harness.create('a'), await harness.create('b'), await harness.create('c')];
  await harness.restartServer();
  harness.driver.kill(a);
  await harness.agents.delete(TENANT, b, null);
  expect((await harness.agents.restart(TENANT, c)).restarts).toBe(1);
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, a)).status).toBe('FAILED'));
  expect(harness.driver.runningIds).toEqual([c]);
});

test('a server adopts an instance whose code did not load, with its load error', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'nowhere' });
  await harness.restartServer();
  expect(await harness.invoke(id)).toMatchObject({ ok: false, code: 4001 });
});

test('a server marks an instance FAILED with its exit when it died while no server ran', async () => {
  await using harness = await Harness.open();
  const [died, gone] = [await harness.create('a'), await harness.create('b')];
  await harness.closeServer();
  harness.driver.kill(died, { signal: 'SIGKILL', oomKilled: true });
  for (const { handle, instanceId } of await harness.driver.list()) {
    if (instanceId === gone) await harness.driver.remove(handle);
  }
  await harness.newServer().start();
  expect(await harness.agents.get(TENANT, died)).toMatchObject({
    status: 'FAILED',
    statusReason: 'instance exited: signal SIGKILL (out of memory)',
  });
  expect(await harness.agents.get(TENANT, gone)).toMatchObject({
    status: 'FAILED',
    statusReason: 'instance exited: its sandbox is gone',
  });
  await expect(harness.invoke(died)).rejects.toMatchObject({ code: 'not_found' });
});

test('a server stops a running sandbox that does not answer and marks its instance FAILED', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  harness.driver.becomeUnreachable(id);
  await harness.newServer({ adoption: { answerMs: 10, silenceMs: 50 } }).start();
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED'));
  expect((await harness.agents.get(TENANT, id)).statusReason).toContain('the connection to the instance was lost');
  expect(harness.driver.runningIds).toEqual([]);
});

test('a server serves while it waits for a silent instance, and adopts that instance when it answers', async () => {
  await using harness = await Harness.open();
  const [late, prompt] = [await harness.create('a', { handler: 'count' }), await harness.create('b')];
  expect(await harness.value(late)).toBe(1);
  await harness.closeServer();
  const awake = gate();
  harness.driver.fallSilent(late, awake.opened);
  await harness.newServer({ adoption: { answerMs: 10, silenceMs: 60_000 } }).start();
  expect(harness.instances.readiness()).toEqual({});
  // On a busy machine this instance may also answer late.
  await vi.waitFor(async () => expect(await harness.value(prompt, 1)).toBe(1));
  const notYet = { code: 'unavailable', message: expect.stringContaining(`${late} has not answered yet`) };
  await expect(harness.invoke(late)).rejects.toMatchObject(notYet);
  await expect(harness.agents.access(TENANT, late)).rejects.toMatchObject(notYet);
  await harness.instances.reconcile();
  expect(await harness.agents.get(TENANT, late)).toMatchObject({ status: 'RUNNING' });
  expect(harness.driver.runningIds).toContain(late);
  awake.open();
  await vi.waitFor(async () => expect(await harness.value(late)).toBe(2));
  expect(harness.driver.starts).toHaveLength(2);
});

test('a server marks a silent instance FAILED with its exit when it dies while the server waits', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  harness.driver.fallSilent(id, new Promise(() => undefined));
  await harness.newServer({ adoption: { answerMs: 10, silenceMs: 60_000 } }).start();
  harness.driver.kill(id, { code: 3 });
  await vi.waitFor(async () => {
    const { status, statusReason } = await harness.agents.get(TENANT, id);
    expect({ status, statusReason }).toEqual({ status: 'FAILED', statusReason: 'instance exited: exit code 3' });
  });
});

test('an instance can be restarted and deleted while silent, and its late answer changes nothing', async () => {
  await using harness = await Harness.open();
  const [restarted, deleted] = [await harness.create('a'), await harness.create('b')];
  await harness.closeServer();
  const awake = gate();
  harness.driver.fallSilent(restarted, awake.opened);
  harness.driver.fallSilent(deleted, awake.opened);
  await harness.newServer({ adoption: { answerMs: 10, silenceMs: 100 } }).start();
  await harness.agents.delete(TENANT, deleted, 0);
  await harness.agents.restart(TENANT, restarted);
  awake.open();
  await harness.instances.reconcile();
  expect(await harness.value(restarted, 1)).toBe(1);
  expect(harness.driver.instanceIds).toEqual([restarted]);
});

test('a server keeps a silent instance whose state is unknown, and adopts it when it returns', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  const awake = gate();
  harness.driver.fallSilent(id, awake.opened);
  harness.driver.faults.unknown = 'its node does not answer';
  const inspect = vi.spyOn(harness.driver, 'inspect');
  await harness.newServer({ adoption: { answerMs: 10, silenceMs: 100 } }).start();
  // The service inspects it at the start and again when the limit of silence is reached.
  await vi.waitFor(() => expect(inspect.mock.calls.length).toBeGreaterThan(2), { timeout: 20_000 });
  const seen = { status: 'RUNNING', statusReason: 'its node does not answer' };
  expect(await harness.agents.get(TENANT, id)).toMatchObject(seen);
  expect((await harness.agents.list({ tenant: TENANT, limit: 1, cursor: null })).instances).toMatchObject([seen]);
  expect(harness.driver.runningIds).toEqual([id]);
  awake.open();
  await vi.waitFor(async () => expect(await harness.value(id, 1)).toBe(1), { timeout: 20_000 });
});

test('a closing server counts silent instances as left running and does not touch them', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  expect(await harness.value(id)).toBe(1);
  await harness.closeServer();
  const awake = gate();
  harness.driver.fallSilent(id, awake.opened);
  await harness.newServer({ adoption: { answerMs: 10, silenceMs: 60_000 } }).start();
  expect(await harness.agents.close({ stopAgents: false, graceMs: 0 })).toEqual({ agentsLeft: 1 });
  awake.open();
  await harness.newServer().start();
  expect(await harness.value(id)).toBe(2);
});

test('a server marks a RUNNING record as dead when its runtime was never initialized', async () => {
  await using harness = await Harness.open();
  const id = await writeRow(harness, 'RUNNING');
  const { handle } = await startSandbox(harness, id);
  await updateInstance(harness.database, { id, epoch: 1, nodeId: 'node-1' }, ['RUNNING'], {
    handle: JSON.stringify(handle),
  });
  await harness.restartServer();
  expect(await harness.agents.get(TENANT, id)).toMatchObject({
    status: 'FAILED',
    statusReason: 'its runtime was new when the server came back',
  });
  expect(harness.driver.runningIds).toEqual([]);
});

test('a server removes the record and the sandbox of an interrupted create', async () => {
  await using harness = await Harness.open();
  const withSandbox = await writeRow(harness, 'CREATING');
  await startSandbox(harness, withSandbox);
  await writeRow(harness, 'CREATING');
  await harness.restartServer();
  expect(harness.driver.instanceIds).toEqual([]);
  expect((await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null })).instances).toEqual([]);
});

test('a create with the key of an interrupted create never returns the id that will be removed', async () => {
  await using harness = await Harness.open({ now: () => 1_000 });
  const idempotency = { key: 'k', requestHash: 'h' };
  const id = await writeRow(harness, 'CREATING', 0, idempotency);
  // The driver does not answer, so the record outlives the start.
  harness.driver.faults.away = 'gone fishing';
  await harness.restartServer();
  harness.driver.faults.away = undefined;
  const request = { spec: specOf('again'), idempotency };
  await expect(harness.agents.create(request)).rejects.toMatchObject({ code: 'unavailable', retryAfterSeconds: 1 });
  await harness.instances.reconcile();
  const created = await harness.agents.create(request);
  expect(created).toMatchObject({ status: 'RUNNING' });
  expect(created.id).not.toBe(id);
  // The key now belongs to the new instance, which a repeated request returns.
  expect((await harness.agents.create(request)).id).toBe(created.id);
});

test('a server adopts an instance later when file descriptors are exhausted at first', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  expect(await harness.value(id)).toBe(1);
  const shortage = Object.assign(new Error('connect EMFILE'), { code: 'EMFILE' });
  const unreachable = unavailable('it cannot be reached', { cause: shortage });
  const opens = (['open', 'reopen'] as const).map(name => vi.spyOn(Channel, name).mockRejectedValue(unreachable));
  try {
    await harness.restartServer({ adoption: { answerMs: 50, silenceMs: 100 } });
    await vi.waitFor(() =>
      expect(harness.logs).toContainEqual(
        expect.objectContaining({
          message: 'adoption of instance failed',
          fields: expect.objectContaining({ instanceId: id }),
        }),
      ),
    );
  } finally {
    for (const open of opens) open.mockRestore();
  }
  expect((await harness.agents.get(TENANT, id)).status).toBe('RUNNING');
  await vi.waitFor(async () => expect(await harness.value(id)).toBe(2));
});

test('a server marks an agent FAILED after an interrupted restart, and the agent can be restarted', async () => {
  await using harness = await Harness.open();
  const id = await writeRow(harness, 'CREATING', 1);
  await startSandbox(harness, id);
  await harness.restartServer();
  expect(await harness.agents.get(TENANT, id)).toMatchObject({
    status: 'FAILED',
    statusReason: 'the server ended while the instance was restarting',
  });
  expect(harness.driver.instanceIds).toEqual([]);
  await harness.agents.restart(TENANT, id);
  expect(await harness.value(id, 1)).toBe(1);
});

test('a server completes an interrupted delete', async () => {
  await using harness = await Harness.open();
  const id = await writeRow(harness, 'STOPPING');
  const { handle } = await startSandbox(harness, id);
  await updateInstance(harness.database, { id, epoch: 1, nodeId: 'node-1' }, ['STOPPING'], {
    handle: JSON.stringify(handle),
  });
  await harness.restartServer();
  expect(harness.driver.instanceIds).toEqual([]);
  await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
});

test('a server removes sandboxes without an instance after the grace period, not before', async () => {
  await using harness = await Harness.open();
  let nowMs = 0;
  const id = await harness.create('a');
  await startSandbox(harness, randomUUID());
  // A second sandbox belongs to an instance that has another one.
  const second = await startSandbox(harness, id);
  await harness.restartServer({ now: () => nowMs, orphanGraceMs: 60_000, cheapDrivers: [] });
  expect(harness.driver.runningIds).toHaveLength(3);
  nowMs = 59_999;
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toHaveLength(3);
  nowMs = 60_000;
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([id]);
  expect(await harness.driver.inspect(second.handle)).toEqual({ state: 'gone' });
  expect(await harness.value(id, 1)).toBe(1);
});

test('a server keeps an orphan that gets its record within the grace period', async () => {
  await using harness = await Harness.open();
  let nowMs = 0;
  await harness.restartServer({ now: () => nowMs, orphanGraceMs: 1000 });
  const id = randomUUID();
  const { handle } = await startSandbox(harness, id);
  await harness.instances.reconcile();
  const row = await writeRow(harness, 'RUNNING');
  await harness.database
    .updateTable('instances')
    .set({ id, handle: JSON.stringify(handle), node_id: 'node-2' })
    .where('id', '=', row)
    .execute();
  nowMs = 5000;
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([id]);
});

test('changes of an ended agent are published with its names after a pass and after a restart of the server', async () => {
  const changes: string[] = [];
  const changed = ({ kind, name }: InstanceChange) => void changes.push(`${kind} ${name}`);
  await using harness = await Harness.open({ changed });
  const [first, second] = [await harness.create('first'), await harness.create('second')];
  for (const id of [first, second]) {
    harness.driver.kill(id);
    await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED'), {
      timeout: 30_000,
    });
  }
  await harness.instances.reconcile();
  changes.length = 0;
  await harness.agents.delete(TENANT, first, 0);
  expect(changes).toEqual(['stopping first', 'ended first']);
  await harness.restartServer();
  changes.length = 0;
  await harness.agents.restart(TENANT, second);
  await harness.instances.reconcile();
  expect(changes).toEqual(['restarting second', 'ready second']);
});

test('a server stops a running sandbox whose agent another node has marked FAILED, and keeps its record', async () => {
  await using harness = await Harness.open();
  const [live, left] = [await harness.create('live'), await harness.create('left')];
  const giveUp = (id: string) =>
    harness.database.updateTable('instances').set({ status: 'FAILED' }).where('id', '=', id).execute();
  await giveUp(live);
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([left]);
  await giveUp(left);
  await harness.restartServer();
  expect(harness.driver.runningIds).toEqual([]);
  for (const id of [live, left]) expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED');
});

test('a server does not touch instances of another node', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.restartServer({ nodeId: 'node-2' });
  expect(harness.agents.liveInstances).toBe(0);
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING' });
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'unavailable' });
  expect(harness.driver.runningIds).toEqual([id]);
});

test('a server stops serving an instance that another node has adopted, and does not end it', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.instances.flushed();
  await harness.database.updateTable('instances').set({ node_id: 'node-2' }).where('id', '=', id).execute();
  await harness.instances.reconcile();
  expect(harness.agents.liveInstances).toBe(0);
  expect(harness.driver.runningIds).toEqual([id]);
  await harness.database.updateTable('instances').set({ node_id: 'node-1' }).where('id', '=', id).execute();
  await harness.instances.reconcile();
  expect(await harness.value(id, 1)).toBe(1);
});

test('only its own node removes an orphan on a shared driver, or any node when that node is lost', async () => {
  await using harness = await Harness.open();
  const lost = new Set<string>();
  await harness.restartServer({ isLost: nodeId => lost.has(nodeId) });
  const own = await startSandbox(harness, randomUUID());
  const others = await startSandbox(harness, randomUUID());
  const nodeOf = new Map([[own.handle.instanceId, 'node-1']]);
  const list = harness.driver.list.bind(harness.driver);
  vi.spyOn(harness.driver, 'list').mockImplementation(async () =>
    (await list()).map(listed => ({ ...listed, nodeId: nodeOf.get(listed.instanceId) ?? 'node-2' })),
  );
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([others.handle.instanceId]);
  lost.add('node-2');
  await harness.instances.reconcile();
  expect(harness.driver.runningIds).toEqual([]);
});

/** Writes the published port that an earlier server had stored for a sandbox. */
async function publishPort(harness: Harness, id: string): Promise<void> {
  const mapping = { protocol: 'tcp', containerPort: 80, hostIp: '127.0.0.1', hostPort: 8080 } as const;
  const sandbox = { ...NO_SANDBOX, portMappings: [mapping] };
  await updateInstance(harness.database, { id, epoch: 1, nodeId: 'node-1' }, ['RUNNING'], { sandbox });
}

test('a server keeps and reports instances of an unavailable driver, and serves them when it returns', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  await publishPort(harness, id);
  harness.driver.faults.away = 'the daemon does not answer';
  await harness.newServer().start();
  expect(harness.instances.readiness()).toEqual({ 'sandbox.fake': 'the daemon does not answer' });
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING' });
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'unavailable' });
  harness.driver.faults.away = undefined;
  // A call that misses adopts the instance before the next reconciler pass.
  expect(await harness.value(id, 1)).toBe(1);
  await harness.instances.reconcile();
  expect(harness.instances.readiness()).toEqual({});
});

test('a server serves an instance that answers while its driver is unavailable, and notices its exit', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  harness.driver.faults.away = 'the daemon does not answer';
  await harness.newServer().start();
  expect(await harness.value(id, 1)).toBe(1);
  harness.driver.faults.away = undefined;
  harness.driver.kill(id);
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED'));
});

test('a server adopts an instance that answers at once without its driver, and watches it 2 to 4 s later', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  const inspect = vi.spyOn(harness.driver, 'inspect');
  const wait = vi.spyOn(harness.driver, 'wait');
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  try {
    await harness.newServer().start();
    expect(await harness.value(id, 1)).toBe(1);
    vi.advanceTimersByTime(1_999);
    expect(wait).not.toHaveBeenCalled();
    vi.advanceTimersByTime(2_001);
    expect(wait).toHaveBeenCalledOnce();
    expect(inspect).not.toHaveBeenCalled();
  } finally {
    vi.useRealTimers();
  }
});

test('a server asks the driver to reopen published ports when it adopts an instance', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  await harness.closeServer();
  await publishPort(harness, id);
  const inspect = vi.spyOn(harness.driver, 'inspect');
  const wait = vi.spyOn(harness.driver, 'wait');
  await harness.newServer().start();
  expect(await harness.value(id, 1)).toBe(1);
  expect(inspect).toHaveBeenCalledOnce();
  expect(wait).toHaveBeenCalled();
});

test('the first call adopts an instance that exists only in storage, once for 10 concurrent calls', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  await harness.closeServer();
  harness.newServer();
  expect(harness.instances.readiness()).toEqual({ scheduler: expect.any(String) });
  const values = await Promise.all(Array.from({ length: 10 }, () => harness.value(id)));
  expect(values).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  expect(harness.agents.liveInstances).toBe(1);
});

test('a reconciler pass changes nothing when it runs during creates', async () => {
  await using harness = await Harness.open();
  const ids = await Promise.all(
    Array.from({ length: 10 }, async (_, n) => {
      const id = await harness.create(`a${n}`, { handler: 'count' });
      await harness.instances.reconcile();
      return id;
    }),
  );
  expect(await Promise.all(ids.map(id => harness.value(id)))).toEqual(ids.map(() => 1));
  expect(harness.driver.starts).toHaveLength(10);
});

import { expect, test, vi } from 'vitest';
import { failedPrecondition, PartAway, unavailable } from '../../src/core/error.ts';
import { LIMITS } from '../../src/core/limits.ts';
import { ServerTiming } from '../../src/lib/server-timing.ts';
import { CODE, fakePackages, gate, Harness, specOf, TENANT } from './harness.ts';

function namesIn(stages: ServerTiming): string[] {
  return [...String(stages).matchAll(/(\w+);dur=\d/g)].map(([, name = '']) => name);
}

/** Expects that no sandbox and no record exist. */
async function expectNothing({ driver, agents }: Harness): Promise<void> {
  expect(driver.instanceIds).toEqual([]);
  expect((await agents.list({ tenant: TENANT, limit: 10, cursor: null })).instances).toEqual([]);
  expect(agents.liveInstances).toBe(0);
}

test('a create answers with an instance that is RUNNING and takes calls', async () => {
  await using harness = await Harness.open();
  const instance = await harness.agents.create({ spec: specOf('a') });
  expect(instance).toMatchObject({ status: 'RUNNING', restarts: 0, loadError: '', nodeId: 'node-1' });
  expect(instance.id).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  expect(instance.sandbox.sandboxId).not.toBe('');
  expect(await harness.agents.get(TENANT, instance.id)).toEqual(instance);
  expect(await harness.value(instance.id, { n: 1 })).toEqual({ n: 1 });
});

test('a create reports the duration of each stage, except for a stage that failed', async () => {
  await using harness = await Harness.open();
  const stages = new ServerTiming();
  await harness.agents.create({ spec: specOf('a'), stages });
  expect(namesIn(stages)).toEqual(['checks', 'row', 'start', 'connect', 'load', 'record']);
  const failed = new ServerTiming();
  harness.driver.faults.startError = failedPrecondition('no room');
  await expect(harness.agents.create({ spec: specOf('b'), stages: failed })).rejects.toThrow('no room');
  expect(namesIn(failed)).toEqual(['checks', 'row']);
});

test('a create reports the time until loading when the runtime reports when it began to load', async () => {
  await using harness = await Harness.open();
  harness.driver.tellsBegin = true;
  const stages = new ServerTiming();
  await harness.agents.create({ spec: specOf('a'), stages });
  expect(namesIn(stages)).toEqual(['checks', 'row', 'start', 'connect', 'runtime', 'load', 'record']);
});

test('a create reports the stages that the driver knows after the rest of the start', async () => {
  await using harness = await Harness.open();
  harness.driver.stages = { mounts: 0, limits: 0 };
  const stages = new ServerTiming();
  await harness.agents.create({ spec: specOf('a'), stages });
  expect(namesIn(stages)).toEqual(['checks', 'row', 'start', 'mounts', 'limits', 'connect', 'load', 'record']);
});

test('a create fails without residue when its code package is removed before the agent is recorded', async () => {
  const { packages, users, faults } = fakePackages();
  const { place } = packages;
  packages.place = async (...of) => {
    const path = await place(...of);
    faults.missing = true;
    return path;
  };
  await using harness = await Harness.open({ packages });
  await expect(harness.create('a', { mounts: [CODE] })).rejects.toThrow('the code package does not exist');
  await expectNothing(harness);
  expect([harness.driver.starts.length, users.size]).toEqual([0, 0]);
});

test('20 concurrent creates with one name make one agent, and the others get its id', async () => {
  await using harness = await Harness.open();
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, () => harness.agents.create({ spec: specOf('a') })),
  );
  const won = results.filter(result => result.status === 'fulfilled');
  const lost = results.filter(result => result.status === 'rejected');
  expect(won).toHaveLength(1);
  for (const { reason } of lost) {
    expect(reason).toMatchObject({
      code: 'already_exists',
      message: 'agent ns/a already exists',
      body: { instance_id: won[0]?.value.id },
    });
  }
  expect(harness.driver.instanceIds).toEqual([won[0]?.value.id]);
});

test('a create with a used name makes another agent when the namespace or tenant differs', async () => {
  await using harness = await Harness.open();
  await harness.create('a');
  await harness.create('a', { namespace: 'other' });
  await harness.create('a', { tenant: 'other' });
  expect(harness.driver.runningIds).toHaveLength(3);
});

test('a create succeeds when the code cannot be loaded, and every call reports the load error', async () => {
  await using harness = await Harness.open();
  const instance = await harness.agents.create({ spec: specOf('a', { handler: 'nowhere' }) });
  expect(instance).toMatchObject({ status: 'RUNNING', loadError: 'no entry nowhere' });
  for (let i = 0; i < 2; i++) {
    expect(await harness.invoke(instance.id)).toMatchObject({ ok: false, code: 4001, text: 'no entry nowhere' });
  }
});

test('a create succeeds without a handler, and calls report that the handler is missing', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: '' });
  expect(await harness.invoke(id)).toMatchObject({ ok: false, code: 4201, text: 'empty user call code' });
});

test('the initializer runs once before the first call', async () => {
  await using harness = await Harness.open();
  const ran: string[] = [];
  harness.driver.handlers.set('init', () => void ran.push('init'));
  harness.driver.handlers.set('main', () => void ran.push('main'));
  const id = await harness.create('a', { handler: 'main', initializer: 'init' });
  expect(ran).toEqual(['init']);
  await harness.value(id);
  await harness.value(id);
  expect(ran).toEqual(['init', 'main', 'main']);
});

test('a failed start fails the create with its cause, leaves no residue and frees the name', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.startError = failedPrecondition('mount source does not exist: /nowhere');
  await expect(harness.create('a')).rejects.toMatchObject({
    code: 'failed_precondition',
    message: 'mount source does not exist: /nowhere',
  });
  await expectNothing(harness);
  harness.driver.faults.startError = undefined;
  await harness.create('a');
});

test('a create fails as invalid without a sandbox when its runtime cannot run on this machine', async () => {
  await using harness = await Harness.open();
  await expect(harness.create('a', { runtime: 'custom image' })).rejects.toMatchObject({
    code: 'failed_precondition',
    message: expect.stringContaining('invalid function: runtime custom image is not available: '),
  });
  await expectNothing(harness);
  expect(harness.driver.starts).toEqual([]);
});

test('a create fails with the message of the probe when the driver does not answer', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.away = 'nobody listens';
  await expect(harness.create('a')).rejects.toMatchObject({
    code: 'unavailable',
    message: 'fake is not available: nobody listens',
  });
  harness.driver.faults.away = undefined;
  await expectNothing(harness);
});

test('a create fails with the error of the start, not of the probe, when one part is unavailable', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.startError = new PartAway('the zygote for Python 3.11 did not start: it said nothing');
  await expect(harness.create('a')).rejects.toMatchObject({
    code: 'unavailable',
    message: 'fake is not available: the zygote for Python 3.11 did not start: it said nothing',
  });
  await expectNothing(harness);
});

test('a create fails before anything is stored when this installation lacks the driver', async () => {
  await using harness = await Harness.open();
  harness.newServer({ drivers: () => Promise.reject(unavailable('docker is not available: not here')) });
  await expect(harness.create('a')).rejects.toThrow('docker is not available: not here');
  await expectNothing(harness);
});

test.each([true, false])(
  'a create ends its start when the create budget is exceeded (driver heeds its signal: %s)',
  async obeysAbort => {
    await using harness = await Harness.open({ createTimeoutMs: 50 });
    const held = gate();
    Object.assign(harness.driver.faults, { startGate: held.opened, obeysAbort });
    const create = harness.create('a');
    if (!obeysAbort) {
      // The sandbox starts only after the budget is exceeded; the service must remove it nevertheless.
      await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(1));
      setTimeout(held.open, 100);
    }
    await expect(create).rejects.toMatchObject({
      code: 'deadline_exceeded',
      message: 'the instance did not start within 0.05 s',
    });
    await expectNothing(harness);
    held.open();
  },
);

test('a create ends an initializer that never returns when the create budget is exceeded', async () => {
  await using harness = await Harness.open({ createTimeoutMs: 100 });
  harness.driver.handlers.set('init', () => new Promise(() => undefined));
  await expect(harness.create('a', { initializer: 'init', initTimeoutMs: 60_000 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
  });
  await expectNothing(harness);
});

test('a create fails with the exit of the instance when the instance dies while its code loads', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('init', (_event, { exit }) => exit(3));
  await expect(harness.create('a', { initializer: 'init' })).rejects.toMatchObject({
    code: 'unavailable',
    message: 'instance exited: exit code 3',
  });
  await expectNothing(harness);
});

test('the service removes the sandbox of a failed create later when the removal fails at first', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('init', (_event, { exit }) => exit(3));
  harness.driver.faults.removeFailures = 1;
  await expect(harness.create('a', { initializer: 'init' })).rejects.toThrow('instance exited');
  await vi.waitFor(() => expectNothing(harness));
});

test('an instance is listed as CREATING, rejects calls and can be deleted while its create runs', async () => {
  await using harness = await Harness.open();
  const held = gate();
  harness.driver.faults.startGate = held.opened;
  const create = harness.create('a');
  const failed = expect(create).rejects.toThrow('the instance was deleted while it was starting');
  await vi.waitFor(async () => {
    const { instances } = await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null });
    expect(instances).toMatchObject([{ status: 'CREATING' }]);
  });
  const id = harness.driver.starts[0]?.instanceId as string;
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'not_found' });
  await harness.agents.delete(TENANT, id, null);
  await failed;
  await expectNothing(harness);
});

test('the service rejects creates when too many starts run at once', async () => {
  await using harness = await Harness.open({ maxStarting: 2 });
  const held = gate();
  harness.driver.faults.startGate = held.opened;
  const creates = [harness.create('a'), harness.create('b')];
  await expect(harness.create('c')).rejects.toMatchObject({ code: 'resource_exhausted', retryAfterSeconds: 1 });
  held.open();
  await Promise.all(creates);
});

test('a create leaves no residue when the server stops in the middle of it', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.startGate = gate().opened;
  const failed = expect(harness.create('a')).rejects.toThrow('the server is stopping');
  await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(1));
  await harness.agents.close({ stopAgents: false, graceMs: 1000 });
  await failed;
  await expectNothing(harness);
});

test('a create writes twice to storage, and a call does not use storage', async () => {
  await using harness = await Harness.open();
  const queries: string[] = [];
  const database = harness.database.withPlugin({
    transformQuery: ({ node }) => {
      queries.push(node.kind);
      return node;
    },
    transformResult: async ({ result }) => result,
  });
  harness.newServer({ database });
  const id = await harness.create('a');
  await harness.agents.get(TENANT, id);
  expect(queries).toEqual(['InsertQueryNode', 'UpdateQueryNode', 'SelectQueryNode']);
  queries.length = 0;
  await Promise.all([1, 2, 3].map(event => harness.value(id, event)));
  expect(queries).toEqual([]);
});

const KEY = { key: 'k', requestHash: 'h' };

test('a create returns the same instance when key and request are repeated, also concurrently', async () => {
  await using harness = await Harness.open();
  const request = { spec: specOf('a'), idempotency: KEY };
  const instances = await Promise.all(Array.from({ length: 5 }, () => harness.agents.create(request)));
  instances.push(await harness.agents.create(request));
  expect(new Set(instances.map(({ id }) => id)).size).toBe(1);
  expect(new Set(instances.map(({ status }) => status))).toEqual(new Set(['RUNNING']));
  expect(harness.driver.starts).toHaveLength(1);
});

test('a create is rejected when its idempotency key was used for another request of the tenant', async () => {
  await using harness = await Harness.open();
  await harness.agents.create({ spec: specOf('a'), idempotency: KEY });
  await expect(
    harness.agents.create({ spec: specOf('b'), idempotency: { ...KEY, requestHash: 'other' } }),
  ).rejects.toMatchObject({ code: 'already_exists', message: 'idempotency key k was used with another request' });
  await harness.agents.create({ spec: specOf('a', { tenant: 'other' }), idempotency: KEY });
});

test('an idempotency key is free 24 h after the create, after the delete and after a failed create', async () => {
  let nowMs = 1_000_000;
  await using harness = await Harness.open({ now: () => nowMs });
  const create = (name: string, requestHash: string) =>
    harness.agents.create({ spec: specOf(name), idempotency: { key: 'k', requestHash } });

  harness.driver.faults.startError = failedPrecondition('no');
  await expect(create('a', '1')).rejects.toThrow('no');
  harness.driver.faults.startError = undefined;

  const first = await create('a', '2');
  nowMs += LIMITS.idempotencyKeepMs - 1;
  await expect(create('b', '3')).rejects.toThrow('idempotency key k was used');
  nowMs += 1;
  const second = await create('b', '3');
  expect(second.id).not.toBe(first.id);
  await harness.agents.delete(TENANT, second.id, 0);
  await create('c', '4');
});

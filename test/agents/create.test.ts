import { expect, test, vi } from 'vitest';
import { failedPrecondition, unavailable } from '../../src/core/error.ts';
import { LIMITS } from '../../src/core/limits.ts';
import { Stages } from '../../src/lib/stages.ts';
import { CODE, fakePackages, gate, Harness, specOf, TENANT } from './harness.ts';

function namesIn(stages: Stages): string[] {
  return [...String(stages).matchAll(/(\w+);dur=\d/g)].map(([, name = '']) => name);
}

/** Nothing is left: no sandbox, no row. */
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

test('a create tells where its time went, stage by stage; a stage that failed tells nothing', async () => {
  await using harness = await Harness.open();
  const stages = new Stages();
  await harness.agents.create({ spec: specOf('a'), stages });
  expect(namesIn(stages)).toEqual(['checks', 'row', 'start', 'connect', 'load', 'record']);
  const failed = new Stages();
  harness.driver.faults.startError = failedPrecondition('no room');
  await expect(harness.agents.create({ spec: specOf('b'), stages: failed })).rejects.toThrow('no room');
  expect(namesIn(failed)).toEqual(['checks', 'row']);
});

test('a runtime that tells when it began to load has a stage for the time until then', async () => {
  await using harness = await Harness.open();
  harness.driver.tellsBegin = true;
  const stages = new Stages();
  await harness.agents.create({ spec: specOf('a'), stages });
  expect(namesIn(stages)).toEqual(['checks', 'row', 'start', 'connect', 'runtime', 'load', 'record']);
});

test('parts of a start that its driver knows stand behind what is left of it', async () => {
  await using harness = await Harness.open();
  harness.driver.stages = { mounts: 0, limits: 0 };
  const stages = new Stages();
  await harness.agents.create({ spec: specOf('a'), stages });
  expect(namesIn(stages)).toEqual(['checks', 'row', 'start', 'mounts', 'limits', 'connect', 'load', 'record']);
});

test('a code package that is removed before the agent that names it has its row fails the create, and nothing is left of it', async () => {
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

test('20 creates of one name at the same moment: one winner, the losers learn its id', async () => {
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

test('the same name in another namespace or tenant is another agent', async () => {
  await using harness = await Harness.open();
  await harness.create('a');
  await harness.create('a', { namespace: 'other' });
  await harness.create('a', { tenant: 'other' });
  expect(harness.driver.runningIds).toHaveLength(3);
});

test('a load failure does not fail the create: it is kept and every call reports it', async () => {
  await using harness = await Harness.open();
  const instance = await harness.agents.create({ spec: specOf('a', { handler: 'nowhere' }) });
  expect(instance).toMatchObject({ status: 'RUNNING', loadError: 'no entry nowhere' });
  for (let i = 0; i < 2; i++) {
    expect(await harness.invoke(instance.id)).toMatchObject({ ok: false, code: 4001, text: 'no entry nowhere' });
  }
});

test('an agent without a handler is created, and calls of it say so', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: '' });
  expect(await harness.invoke(id)).toMatchObject({ ok: false, code: 4201, text: 'empty user call code' });
});

test('the initializer runs once, before the first call', async () => {
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

test('a start that fails: the cause is the error, nothing is left and the name is free', async () => {
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

test('a runtime value that cannot be run here is an invalid function, and no sandbox is started', async () => {
  await using harness = await Harness.open();
  await expect(harness.create('a', { runtime: 'custom image' })).rejects.toMatchObject({
    code: 'failed_precondition',
    message: expect.stringContaining('invalid function: runtime custom image is not available: '),
  });
  await expectNothing(harness);
  expect(harness.driver.starts).toEqual([]);
});

test('a driver that does not answer: the error is what its probe says', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.away = 'nobody listens';
  await expect(harness.create('a')).rejects.toMatchObject({
    code: 'unavailable',
    message: 'fake is not available: nobody listens',
  });
  harness.driver.faults.away = undefined;
  await expectNothing(harness);
});

test('a driver that this installation does not have fails the create before anything is written', async () => {
  await using harness = await Harness.open();
  harness.newServer({ drivers: () => Promise.reject(unavailable('docker is not available: not here')) });
  await expect(harness.create('a')).rejects.toThrow('docker is not available: not here');
  await expectNothing(harness);
});

test.each([true, false])(
  'a start beyond the create budget is ended (driver heeds its signal: %s)',
  async obeysAbort => {
    await using harness = await Harness.open({ createTimeoutMs: 50 });
    const held = gate();
    Object.assign(harness.driver.faults, { startGate: held.opened, obeysAbort });
    const create = harness.create('a');
    if (!obeysAbort) {
      // It comes only after the budget is over: the sandbox must go all the same.
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

test('an initializer that never ends is bounded by the create budget', async () => {
  await using harness = await Harness.open({ createTimeoutMs: 100 });
  harness.driver.handlers.set('init', () => new Promise(() => undefined));
  await expect(harness.create('a', { initializer: 'init', initTimeoutMs: 60_000 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
  });
  await expectNothing(harness);
});

test('an instance that dies while its code loads fails the create with its exit', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('init', (_event, { exit }) => exit(3));
  await expect(harness.create('a', { initializer: 'init' })).rejects.toMatchObject({
    code: 'unavailable',
    message: 'instance exited: exit code 3',
  });
  await expectNothing(harness);
});

test('a failed create whose sandbox cannot be removed is cleaned up later', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('init', (_event, { exit }) => exit(3));
  harness.driver.faults.removeFailures = 1;
  await expect(harness.create('a', { initializer: 'init' })).rejects.toThrow('instance exited');
  await vi.waitFor(() => expectNothing(harness), 5_000);
});

test('an instance that is being created is listed as CREATING, cannot be called, and can be deleted', async () => {
  await using harness = await Harness.open();
  const held = gate();
  harness.driver.faults.startGate = held.opened;
  const create = harness.create('a');
  const failed = expect(create).rejects.toThrow('the instance was deleted while it was starting');
  await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(1));
  const { instances } = await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null });
  expect(instances).toMatchObject([{ status: 'CREATING' }]);
  const id = instances[0]?.id as string;
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'not_found' });
  await harness.agents.delete(TENANT, id, null);
  await failed;
  await expectNothing(harness);
});

test('too many starts at the same moment are refused', async () => {
  await using harness = await Harness.open({ maxStarting: 2 });
  const held = gate();
  harness.driver.faults.startGate = held.opened;
  const creates = [harness.create('a'), harness.create('b')];
  await expect(harness.create('c')).rejects.toMatchObject({ code: 'resource_exhausted', retryAfterSeconds: 1 });
  held.open();
  await Promise.all(creates);
});

test('a stop of the server in the middle of a create leaves nothing', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.startGate = gate().opened;
  const failed = expect(harness.create('a')).rejects.toThrow('the server is stopping');
  await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(1));
  await harness.agents.close({ stopAgents: false, graceMs: 1000 });
  await failed;
  await expectNothing(harness);
});

test('a create writes twice, and a call asks storage for nothing', async () => {
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
  expect(queries).toEqual(['SelectQueryNode', 'InsertQueryNode', 'UpdateQueryNode', 'SelectQueryNode']);
  queries.length = 0;
  await Promise.all([1, 2, 3].map(event => harness.value(id, event)));
  expect(queries).toEqual([]);
});

const KEY = { key: 'k', requestHash: 'h' };

test('the same idempotency key and request give the same instance, at the same moment and later', async () => {
  await using harness = await Harness.open();
  const request = { spec: specOf('a'), idempotency: KEY };
  const instances = await Promise.all(Array.from({ length: 5 }, () => harness.agents.create(request)));
  instances.push(await harness.agents.create(request));
  expect(new Set(instances.map(({ id }) => id)).size).toBe(1);
  expect(new Set(instances.map(({ status }) => status))).toEqual(new Set(['RUNNING']));
  expect(harness.driver.starts).toHaveLength(1);
});

test('an idempotency key that comes with another request is refused, unless the tenant is another one', async () => {
  await using harness = await Harness.open();
  await harness.agents.create({ spec: specOf('a'), idempotency: KEY });
  await expect(
    harness.agents.create({ spec: specOf('b'), idempotency: { ...KEY, requestHash: 'other' } }),
  ).rejects.toMatchObject({ code: 'already_exists', message: 'idempotency key k was used with another request' });
  await harness.agents.create({ spec: specOf('a', { tenant: 'other' }), idempotency: KEY });
});

test('an idempotency key is free after 24 h, after the delete, and after a failed create', async () => {
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

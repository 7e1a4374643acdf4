import { expect, test, vi } from 'vitest';
import type { InstanceSpec } from '../../src/core/instance.ts';
import { findAgentByName } from '../../src/storage/queries/agents.ts';
import { Harness, specOf, TENANT } from './harness.ts';

const replace = async (harness: Harness, changes: Partial<InstanceSpec> = {}, key?: string) =>
  await harness.agents.create({
    spec: specOf('a', changes),
    replaces: true,
    ...(key !== undefined && { idempotency: { key, requestHash: 'h' } }),
  });

const named = async (harness: Harness) =>
  (await harness.agents.list({ tenant: TENANT, namespace: 'ns', name: 'a', limit: 10, cursor: null })).instances.map(
    ({ id }) => id,
  );

test('a replacement takes the name and ends the old agent when its code is loaded', async () => {
  await using harness = await Harness.open();
  const old = await harness.create('a');
  const { id, status } = await replace(harness);
  expect(status).toBe('RUNNING');
  expect(await named(harness)).toEqual([id]);
  expect(harness.driver.runningIds).toEqual([id]);
  await expect(harness.agents.get(TENANT, old)).rejects.toThrow('instance not found');
  expect(await harness.value(id, 1)).toBe(1);
});

test('the old agent keeps its name and its state when the code of the replacement cannot be loaded', async () => {
  await using harness = await Harness.open();
  const old = await harness.create('a', { handler: 'count' });
  await harness.value(old);
  await expect(replace(harness, { handler: 'nowhere' })).rejects.toThrow(
    /^the code of agent ns\/a could not be loaded: /,
  );
  expect(await named(harness)).toEqual([old]);
  expect(await harness.value(old)).toBe(2);
  expect(harness.driver.runningIds).toEqual([old]);
});

test('a replacement without a predecessor leaves no residue when its code cannot be loaded', async () => {
  await using harness = await Harness.open();
  await expect(replace(harness, { handler: 'nowhere' })).rejects.toThrow('could not be loaded');
  expect(await named(harness)).toEqual([]);
  expect(harness.driver.runningIds).toEqual([]);
  const { id } = await replace(harness);
  expect(await named(harness)).toEqual([id]);
});

test('the old agent serves under its name while the replacement starts', async () => {
  await using harness = await Harness.open();
  const old = await harness.create('a');
  let open!: () => void;
  harness.driver.faults.startGate = new Promise<void>(resolve => {
    open = resolve;
  });
  const replaced = replace(harness);
  const all = async () => (await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null })).instances;
  await vi.waitFor(async () => expect(await all()).toHaveLength(2));
  expect((await all()).find(({ id }) => id !== old)).toMatchObject({ status: 'CREATING', spec: { name: 'a' } });
  expect(await named(harness)).toEqual([old]);
  expect(await harness.value(old, 7)).toBe(7);
  await expect(harness.create('a')).rejects.toThrow('agent ns/a already exists');
  open();
  const { id } = await replaced;
  expect(await named(harness)).toEqual([id]);
  expect(await all()).toHaveLength(1);
});

test('two concurrent replacements leave one agent', async () => {
  await using harness = await Harness.open();
  await harness.create('a');
  const ids = (await Promise.all([replace(harness), replace(harness)])).map(({ id }) => id);
  const [left] = await named(harness);
  expect(ids).toContain(left);
  expect(harness.driver.runningIds).toEqual([left]);
});

test.each(['FAILED', 'code not loaded'])('a replacement takes the name of an agent that is %s', async how => {
  await using harness = await Harness.open();
  const old = await harness.create('a', how === 'FAILED' ? {} : { handler: 'nowhere' });
  if (how === 'FAILED') {
    harness.driver.kill(old);
    await vi.waitFor(async () => expect((await harness.agents.get(TENANT, old)).status).toBe('FAILED'));
  }
  const { id } = await replace(harness);
  expect(await named(harness)).toEqual([id]);
  await expect(harness.agents.get(TENANT, old)).rejects.toThrow('instance not found');
});

test('the idempotency key of a replacement belongs to the new agent', async () => {
  await using harness = await Harness.open();
  const first = await replace(harness, {}, 'k1');
  const second = await replace(harness, {}, 'k2');
  expect((await replace(harness, {}, 'k2')).id).toBe(second.id);
  expect((await findAgentByName(harness.database, TENANT, 'ns', 'a'))?.requestHash).toBe('h');
  // The service removed the first agent together with its key.
  const third = await replace(harness, {}, 'k1');
  expect(third.id).not.toBe(first.id);
  expect(await named(harness)).toEqual([third.id]);
});

test('the pre_stop of the old agent runs when it is replaced', async () => {
  await using harness = await Harness.open();
  const stops: string[] = [];
  harness.driver.handlers.set('stop', () => {
    stops.push('stopped');
  });
  await harness.create('a', { preStop: 'stop' });
  await replace(harness);
  expect(stops).toEqual(['stopped']);
});

test('a restarted server keeps the new agent when the old one could not be removed', async () => {
  await using harness = await Harness.open();
  await harness.create('a');
  harness.driver.faults.removeFailures = 1;
  const { id } = await replace(harness);
  await harness.restartServer();
  await harness.instances.reconcile();
  expect(await named(harness)).toEqual([id]);
  expect(harness.driver.runningIds).toEqual([id]);
  const next = await harness.create('b');
  expect(harness.driver.runningIds.toSorted()).toEqual([id, next].toSorted());
});

import { expect, test, vi } from 'vitest';
import { failedPrecondition } from '../../src/core/error.ts';
import { gate, Harness, TENANT } from './harness.ts';

test('a delete runs pre_stop once, removes the sandbox and frees the name', async () => {
  await using harness = await Harness.open();
  let stops = 0;
  harness.driver.handlers.set('stop', () => void stops++);
  const id = await harness.create('a', { preStop: 'stop' });
  await harness.agents.delete(TENANT, id, null);
  expect(stops).toBe(1);
  expect(harness.driver.instanceIds).toEqual([]);
  await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
  await harness.create('a');
});

test('a delete ends open calls at once and still runs pre_stop', async () => {
  await using harness = await Harness.open();
  const stopped = gate();
  const running = gate();
  let stops = 0;
  harness.driver.handlers.set('held', () => {
    running.open();
    return new Promise(() => undefined);
  });
  harness.driver.handlers.set('stop', async () => {
    await stopped.opened;
    stops++;
  });
  const id = await harness.create('a', { handler: 'held', preStop: 'stop' });
  const calls = [1, 2].map(() =>
    expect(harness.invoke(id)).rejects.toMatchObject({ code: 'unavailable', message: 'instance exited: deleted' }),
  );
  await running.opened;
  const deleted = harness.agents.delete(TENANT, id, null);
  await Promise.all(calls);
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'STOPPING' });
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'not_found' });
  stopped.open();
  await deleted;
  expect(stops).toBe(1);
});

test('the second of two concurrent deletes fails with not found', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  const results = await Promise.allSettled([1, 2].map(() => harness.agents.delete(TENANT, id, null)));
  expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
  await expect(harness.agents.delete(TENANT, id, null)).rejects.toMatchObject({ code: 'not_found' });
});

test('a delete continues when pre_stop fails, and logs the code of the failure', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { preStop: 'fail' });
  await harness.agents.delete(TENANT, id, null);
  expect(harness.logs).toContainEqual({
    level: 'warn',
    fields: { instanceId: id, code: 4009, reason: 'broken' },
    message: 'pre_stop failed',
  });
  expect(harness.driver.instanceIds).toEqual([]);
});

test('a delete ends a pre_stop that never returns when the grace is over', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('stop', () => new Promise(() => undefined));
  const id = await harness.create('a', { preStop: 'stop' });
  await harness.agents.delete(TENANT, id, 50);
  expect(harness.logs.some(({ fields }) => fields.code === 4009)).toBe(true);
  expect(harness.driver.instanceIds).toEqual([]);
});

test('a delete with a grace of 0 ends the instance without pre_stop', async () => {
  await using harness = await Harness.open();
  let stops = 0;
  harness.driver.handlers.set('stop', () => void stops++);
  const id = await harness.create('a', { preStop: 'stop' });
  await harness.agents.delete(TENANT, id, 0);
  expect(stops).toBe(0);
  expect(harness.driver.instanceIds).toEqual([]);
});

test('a delete removes a sandbox that cannot be stopped', async () => {
  await using harness = await Harness.open();
  harness.driver.faults.stopFailures = 1;
  await harness.agents.delete(TENANT, await harness.create('a'), null);
  expect(harness.driver.instanceIds).toEqual([]);
});

test('a delete reports a failed removal, and the service completes it later', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.faults.removeFailures = 1;
  await expect(harness.agents.delete(TENANT, id, null)).rejects.toMatchObject({
    code: 'unavailable',
    message: `instance ${id} could not be removed yet; the service retries: the removal failed on demand`,
  });
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'STOPPING' });
  await harness.instances.reconcile();
  await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
  expect(harness.driver.instanceIds).toEqual([]);
});

test('a restart keeps id and name, starts a new sandbox and discards the state of the old one', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { handler: 'count' });
  expect([await harness.value(id), await harness.value(id)]).toEqual([1, 2]);
  const before = await harness.agents.get(TENANT, id);
  const after = await harness.agents.restart(TENANT, id);
  expect(after).toMatchObject({
    id,
    spec: before.spec,
    status: 'RUNNING',
    restarts: 1,
    createdAtMs: before.createdAtMs,
  });
  expect(after.sandbox.sandboxId).not.toBe(before.sandbox.sandboxId);
  expect(await harness.agents.get(TENANT, id)).toEqual(after);
  expect(await harness.value(id)).toBe(1);
  expect(harness.driver.instanceIds).toEqual([id]);
});

test('a restart ends open calls, also of a stuck instance', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('stuck', event => (event === 'ask' ? 'free' : new Promise(() => undefined)));
  const id = await harness.create('a', { handler: 'stuck' });
  const call = expect(harness.invoke(id)).rejects.toThrow('instance exited: restarted');
  await harness.agents.restart(TENANT, id);
  await call;
  expect(await harness.value(id, 'ask')).toBe('free');
});

test('a restart starts a FAILED instance', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.kill(id);
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('FAILED'));
  expect(await harness.agents.restart(TENANT, id)).toMatchObject({
    status: 'RUNNING',
    statusReason: '',
    restarts: 1,
  });
  expect(await harness.value(id, 5)).toBe(5);
  expect(harness.driver.instanceIds).toEqual([id]);
});

test('a failed restart leaves the instance FAILED with the reason, and the restart can be repeated', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.faults.startError = failedPrecondition('the mount went away');
  await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({
    code: 'failed_precondition',
    message: 'the mount went away',
  });
  expect(await harness.agents.get(TENANT, id)).toMatchObject({
    status: 'FAILED',
    statusReason: 'the restart failed: the mount went away',
  });
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'not_found' });
  expect(harness.driver.instanceIds).toEqual([]);
  harness.driver.faults.startError = undefined;
  expect(await harness.agents.restart(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 2 });
});

test('the second of two concurrent restarts is rejected, and a delete during a restart wins', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  const held = gate();
  harness.driver.faults.startGate = held.opened;
  const restart = expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({
    code: 'already_exists',
    message: `instance ${id} was deleted while it was starting`,
  });
  await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(2));
  await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({
    code: 'already_exists',
    message: `instance ${id} is being restarted`,
  });
  await harness.agents.delete(TENANT, id, null);
  await restart;
  expect(harness.driver.instanceIds).toEqual([]);
  await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
});

test('a restart is rejected while the instance is being created, and the create continues', async () => {
  await using harness = await Harness.open();
  const held = gate();
  harness.driver.faults.startGate = held.opened;
  const created = harness.create('a');
  await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(1));
  const id = harness.driver.starts[0]?.instanceId ?? '';
  // The record is written after the sandbox starts, or before when the start takes long.
  await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).status).toBe('CREATING'));
  await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({
    code: 'already_exists',
    message: `instance ${id} is being created`,
  });
  held.open();
  expect(await created).toBe(id);
  expect(await harness.value(id, 1)).toBe(1);
});

test('a restart is rejected while the instance is being deleted, also when the delete must be repeated', async () => {
  await using harness = await Harness.open();
  const stopped = gate();
  harness.driver.handlers.set('stop', () => stopped.opened);
  const id = await harness.create('a', { preStop: 'stop' });
  const isDeleted = { code: 'already_exists', message: `instance ${id} is being deleted` };
  harness.driver.faults.removeFailures = 1;
  const deleted = harness.agents.delete(TENANT, id, null);
  await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject(isDeleted);
  stopped.open();
  await expect(deleted).rejects.toMatchObject({ code: 'unavailable' });
  await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject(isDeleted);
  await harness.instances.reconcile();
  await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
  expect(harness.driver.instanceIds).toEqual([]);
});

test('a delete wins against a concurrent restart in either order', async () => {
  await using harness = await Harness.open();
  for (const order of ['delete first', 'restart first']) {
    const id = await harness.create(order);
    const restart = () => harness.agents.restart(TENANT, id);
    const remove = () => harness.agents.delete(TENANT, id, null);
    const results = order === 'delete first' ? [remove(), restart()] : [restart(), remove()];
    const [first, second] = await Promise.allSettled(results);
    const [deleted, restarted] = order === 'delete first' ? [first, second] : [second, first];
    expect(deleted).toMatchObject({ status: 'fulfilled' });
    expect(restarted).toMatchObject({ status: 'rejected', reason: { code: 'already_exists' } });
    await expect(harness.agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
  }
  expect(harness.driver.instanceIds).toEqual([]);
});

test('close waits for running calls, then disconnects from the instances without ending them', async () => {
  await using harness = await Harness.open();
  const held = gate();
  harness.driver.handlers.set('held', () => held.opened);
  const id = await harness.create('a', { handler: 'held' });
  const call = harness.invoke(id);
  const closed = harness.agents.close({ stopAgents: false, graceMs: 10_000 });
  await expect(harness.create('b')).rejects.toThrow('the server is stopping');
  await expect(harness.invoke(id)).rejects.toThrow('the server is stopping');
  expect(harness.instances.readiness()).toEqual({ scheduler: 'stopping' });
  held.open();
  expect((await call).ok).toBe(true);
  expect(await closed).toEqual({ agentsLeft: 1 });
  expect(harness.driver.runningIds).toEqual([id]);
});

test('close ends open calls when its grace is over', async () => {
  await using harness = await Harness.open();
  harness.driver.handlers.set('held', () => new Promise(() => undefined));
  const id = await harness.create('a', { handler: 'held' });
  const call = expect(harness.invoke(id)).rejects.toMatchObject({
    code: 'unavailable',
    message: 'the server is stopping',
  });
  expect(await harness.agents.close({ stopAgents: false, graceMs: 20 })).toEqual({ agentsLeft: 1 });
  await call;
  expect(harness.driver.runningIds).toEqual([id]);
});

test('close with stopAgents deletes all agents and runs their pre_stop', async () => {
  await using harness = await Harness.open();
  let stops = 0;
  harness.driver.handlers.set('stop', () => void stops++);
  for (let n = 0; n < 5; n++) await harness.create(`a${n}`, { preStop: 'stop' });
  expect(await harness.agents.close({ stopAgents: true, graceMs: 1000 })).toEqual({ agentsLeft: 0 });
  expect(stops).toBe(5);
  expect(harness.driver.instanceIds).toEqual([]);
});

test('close with stopAgents retries failed removals and reports the rest', async () => {
  await using harness = await Harness.open();
  for (let n = 0; n < 3; n++) await harness.create(`a${n}`);
  harness.driver.faults.removeFailures = 4;
  expect(await harness.agents.close({ stopAgents: true, graceMs: 1000 })).toEqual({ agentsLeft: 0 });
  expect(harness.driver.instanceIds).toEqual([]);
});

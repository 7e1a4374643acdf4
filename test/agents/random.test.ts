import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { ServiceError } from '../../src/core/error.ts';
import { SILENCE_TIMES } from '../../src/instances/silence-times.ts';
import { propertyRuns } from '../parts/property-runs.ts';
import { Harness, TENANT } from './harness.ts';

const NAMES = ['a', 'b'];
const ONE = fc.record({
  do: fc.constantFrom('create', 'create', 'delete', 'restart', 'call', 'exit', 'drop'),
  name: fc.constantFrom(...NAMES),
});
const ALL = fc.record({ do: fc.constantFrom('reconcile', 'server'), name: fc.constant('') });
const STEP = fc.oneof({ weight: 9, arbitrary: ONE }, { weight: 1, arbitrary: ALL });
/** Rounds of operations; the operations in a round run concurrently. */
const ROUNDS = fc.array(fc.array(STEP, { minLength: 1, maxLength: 5, size: 'max' }), {
  minLength: 1,
  maxLength: 8,
  size: 'max',
});

async function take(harness: Harness, step: { readonly do: string; readonly name: string }): Promise<void> {
  const { driver, agents } = harness;
  if (step.do === 'create') await harness.create(step.name, { handler: 'count' });
  if (step.do === 'reconcile') await harness.instances.reconcile();
  if (step.do === 'server') await harness.restartServer();
  const { instances } = await agents.list({ tenant: TENANT, limit: 1, cursor: null, name: step.name });
  const id = instances[0]?.id;
  if (id === undefined) return;
  if (step.do === 'delete') await agents.delete(TENANT, id, null);
  if (step.do === 'restart') await agents.restart(TENANT, id);
  if (step.do === 'call') await harness.invoke(id);
  if (step.do === 'exit' && driver.runningIds.includes(id)) driver.kill(id);
  if (step.do === 'drop' && driver.runningIds.includes(id)) driver.dropConnections(id);
}

/** Expects that each record is FAILED or runs and serves, that each sandbox has a record, and no residue. */
async function expectOrder(harness: Harness): Promise<void> {
  const { instances } = await harness.agents.list({ tenant: TENANT, limit: 100, cursor: null });
  for (const { status } of instances) expect(['RUNNING', 'FAILED']).toContain(status);
  const running = instances.filter(({ status }) => status === 'RUNNING').map(({ id }) => id);
  expect(harness.driver.runningIds.toSorted()).toEqual(running.toSorted());
  expect(instances.map(({ id }) => id)).toEqual(expect.arrayContaining(harness.driver.instanceIds));
  for (const id of running) expect((await harness.invoke(id)).ok).toBe(true);
  expect(harness.agents.liveInstances).toBe(running.length);
  expect(harness.agents.openCalls).toBe(0);
}

test('records and sandboxes agree after any sequence of operations, also concurrent ones', async () => {
  await fc.assert(
    fc.asyncProperty(ROUNDS, async rounds => {
      await using harness = await Harness.open({ silence: { ...SILENCE_TIMES, findOutMs: 100 } });
      for (const name of NAMES) await harness.create(name, { handler: 'count' });
      for (const round of rounds) {
        const results = await Promise.allSettled(round.map(step => take(harness, step)));
        for (const result of results) {
          // A rejection is allowed; any other error is a fault of the service.
          if (result.status === 'rejected') expect(result.reason).toBeInstanceOf(ServiceError);
        }
      }
      // No reconciler pass runs here, since it would repair faults.
      await vi.waitFor(() => expectOrder(harness), { timeout: 30_000, interval: 10 });
    }),
    { numRuns: propertyRuns(100), endOnFailure: true },
  );
}, 120_000);

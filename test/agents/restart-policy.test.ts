import type { KyselyPlugin } from 'kysely';
import { expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import type { RestartPolicy } from '../../src/core/restart-policy.ts';
import { gate, Harness, TENANT } from './harness.ts';

const SOON: RestartPolicy = { policy: 'on-failure', maxRestarts: 3, backoffMs: 1 };
/** Restart policy whose restart is due only long after a test has ended. */
const LATE: RestartPolicy = { ...SOON, backoffMs: 3_600_000 };

const seen = async ({ agents }: Harness, id: string) => {
  const { status, restarts, statusReason, restartAtMs } = await agents.get(TENANT, id);
  return { status, restarts, statusReason, isPlanned: restartAtMs > 0 };
};
const until = (harness: Harness, id: string, wanted: object) =>
  vi.waitFor(async () => expect(await seen(harness, id)).toMatchObject(wanted), { timeout: 20_000 });

test('an agent that exits restarts under its id and name, and the restart is counted', async () => {
  const outcomes: string[] = [];
  await using harness = await Harness.open({ restarted: outcome => void outcomes.push(outcome) });
  const id = await harness.create('a', { restartPolicy: SOON });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'RUNNING', restarts: 1, statusReason: '', isPlanned: false });
  expect(await harness.value(id, 'x')).toBe('x');
  await vi.waitFor(() => expect(outcomes).toEqual(['restarted']));
});

test('an agent without a restart policy stays FAILED', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', restarts: 0, isPlanned: false });
});

test('on-failure does not restart an agent after exit code 0, and always does', async () => {
  await using harness = await Harness.open();
  const [a, b] = [
    await harness.create('a', { restartPolicy: SOON }),
    await harness.create('b', { restartPolicy: { ...SOON, policy: 'always' } }),
  ];
  for (const id of [a, b]) harness.driver.kill(id, { code: 0 });
  await until(harness, b, { status: 'RUNNING', restarts: 1 });
  await until(harness, a, { status: 'FAILED', restarts: 0, isPlanned: false });
});

test('an agent stays FAILED after maxRestarts in a row, and a manual restart resets the counter', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: { ...SOON, maxRestarts: 2 } });
  for (const restarts of [1, 2]) {
    harness.driver.kill(id, { code: 3 });
    await until(harness, id, { status: 'RUNNING', restarts });
  }
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, {
    status: 'FAILED',
    statusReason:
      'instance exited: exit code 3; it was restarted 2 times in a row, which is as often as its restart policy allows',
  });
  await harness.agents.restart(TENANT, id);
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'RUNNING', restarts: 4 });
});

test('a call during the backoff reports the failure, its reason and the time of the restart', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  await expect(harness.invoke(id)).rejects.toMatchObject({
    code: 'not_found',
    message: expect.stringMatching(
      `^instance not found: ${id}: it is FAILED \\(instance exited: exit code 3; its restart policy starts it again at .*Z\\); POST .*/restart`,
    ),
  });
});

test('a delete cancels a planned restart and frees the name', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  await harness.agents.delete(TENANT, id, null);
  await harness.create('a');
});

test('a manual restart cancels a planned restart', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  await harness.agents.restart(TENANT, id);
  expect(await seen(harness, id)).toMatchObject({ status: 'RUNNING', restarts: 1, isPlanned: false });
});

test('a restarted service resumes planned restarts of its own node only', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  // The restart is due by now.
  await harness.database.updateTable('instances').set({ restart_at_ms: 1 }).execute();
  await harness.restartServer({ nodeId: 'node-2' });
  expect(await seen(harness, id)).toMatchObject({ status: 'FAILED' });
  await harness.restartServer();
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

test('an agent that exits while a service drains its calls is restarted by the next service', async () => {
  await using harness = await Harness.open();
  const { opened, open } = gate();
  harness.driver.handlers.set('slow', async () => {
    await opened;
    return null;
  });
  const id = await harness.create('a', { restartPolicy: { ...SOON, policy: 'always', maxRestarts: null } });
  const call = harness.invoke(await harness.create('b', { handler: 'slow' }));
  await vi.waitFor(() => expect(harness.agents.openCalls).toBe(1));
  const closing = harness.agents.close({ stopAgents: false, graceMs: 20_000 });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', restarts: 0, isPlanned: true });
  open();
  expect(await call).toMatchObject({ ok: true });
  await closing;
  await harness.restartServer();
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

test('a node that takes over from a lost node resumes its due and its interrupted restarts', async () => {
  await using harness = await Harness.open({ cheapDrivers: [] });
  const [waits, isCutOff] = [
    await harness.create('a', { restartPolicy: LATE }),
    await harness.create('b', { restartPolicy: LATE }),
  ];
  for (const id of [waits, isCutOff]) {
    harness.driver.kill(id, { code: 3 });
    await until(harness, id, { status: 'FAILED', isPlanned: true });
  }
  await harness.closeServer();
  await harness.newServer({ nodeId: 'heir' }).start();
  const rows = () => harness.database.updateTable('instances');
  await rows().set({ status: 'CREATING', epoch: 2 }).where('id', '=', isCutOff).execute();
  // The restarts are due by now.
  await rows().set({ node_id: 'heir', restart_at_ms: 1 }).execute();
  await harness.instances.reconcile();
  await until(harness, waits, { status: 'RUNNING', restarts: 1, isPlanned: false });
  await until(harness, isCutOff, { status: 'RUNNING', restarts: 2, isPlanned: false });
});

test('the next service restarts an agent that died while no service ran', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: SOON });
  await harness.closeServer();
  harness.driver.kill(id, { code: 3 });
  await harness.newServer().start();
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

test('on-failure does not restart an agent after exit code 0 when no service ran', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: SOON });
  await harness.closeServer();
  harness.driver.kill(id, { code: 0 });
  await harness.newServer().start();
  expect(await seen(harness, id)).toMatchObject({ status: 'FAILED', restarts: 0, isPlanned: false });
});

test('a call to an agent whose exit is being written does not change the record', async () => {
  let ends = 0;
  const metrics = { created: () => undefined, exited: () => void ends++ };
  await using harness = await Harness.open({ metrics });
  const id = await harness.create('a', { restartPolicy: SOON });
  await harness.instances.flushed();
  const { rows } = harness.instances;
  const move = rows.move.bind(rows);
  const { opened, open } = gate();
  const moving = vi.spyOn(rows, 'move').mockImplementation(async (...event) => {
    await opened;
    return await move(...event);
  });
  harness.driver.kill(id, { code: 0 });
  await vi.waitFor(() => expect(moving).toHaveBeenCalledOnce());
  const calling = expect(harness.invoke(id)).rejects.toMatchObject({
    code: 'not_found',
    message: expect.stringContaining('it is FAILED (instance exited: exit code 0)'),
  });
  open();
  await calling;
  await until(harness, id, { status: 'FAILED', restarts: 0, isPlanned: false });
  expect(moving).toHaveBeenCalledOnce();
  expect(ends).toBe(1);
});

test('a failed start counts towards maxRestarts', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: { ...SOON, maxRestarts: 2 } });
  harness.driver.faults.startError = unavailable('no room');
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', restarts: 2, isPlanned: false });
  expect((await seen(harness, id)).statusReason).toContain('the restart failed: ');
});

test('a planned restart waits when the database is unavailable at the exit of the agent', async () => {
  let isAway = false;
  const plugin: KyselyPlugin = {
    transformQuery: ({ node }) => {
      if (isAway && node.kind === 'SelectQueryNode') throw unavailable('the database is away');
      return node;
    },
    transformResult: async ({ result }) => result,
  };
  await using harness = await Harness.open({ plugins: [plugin] });
  const id = await harness.create('a', { restartPolicy: SOON });
  isAway = true;
  harness.driver.kill(id, { code: 3 });
  await vi.waitFor(() =>
    expect(harness.logs.map(({ message }) => message)).toContain(
      'restart of agent by its policy waits for the database',
    ),
  );
  isAway = false;
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

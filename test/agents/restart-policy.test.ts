import type { KyselyPlugin } from 'kysely';
import { expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import type { RestartPolicy } from '../../src/core/restart-policy.ts';
import { gate, Harness, TENANT } from './harness.ts';

const SOON: RestartPolicy = { policy: 'on-failure', maxRestarts: 3, backoffMs: 1 };
/** Nobody waits for it: it is due when a test is long over. */
const LATE: RestartPolicy = { ...SOON, backoffMs: 3_600_000 };

const seen = async ({ agents }: Harness, id: string) => {
  const { status, restarts, statusReason, restartAtMs } = await agents.get(TENANT, id);
  return { status, restarts, statusReason, isPlanned: restartAtMs > 0 };
};
const until = (harness: Harness, id: string, wanted: object) =>
  vi.waitFor(async () => expect(await seen(harness, id)).toMatchObject(wanted), { timeout: 20_000 });

test('an agent that ends by itself starts again under its id and name, and is counted', async () => {
  const outcomes: string[] = [];
  await using harness = await Harness.open({ restarted: outcome => void outcomes.push(outcome) });
  const id = await harness.create('a', { restartPolicy: SOON });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'RUNNING', restarts: 1, statusReason: '', isPlanned: false });
  expect(await harness.value(id, 'x')).toBe('x');
  await vi.waitFor(() => expect(outcomes).toEqual(['restarted']));
});

test('without a policy it stays FAILED, as ever', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a');
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', restarts: 0, isPlanned: false });
});

test('on-failure leaves one alone that ended with exit code 0, always starts it again', async () => {
  await using harness = await Harness.open();
  const [a, b] = [
    await harness.create('a', { restartPolicy: SOON }),
    await harness.create('b', { restartPolicy: { ...SOON, policy: 'always' } }),
  ];
  for (const id of [a, b]) harness.driver.kill(id, { code: 0 });
  await until(harness, b, { status: 'RUNNING', restarts: 1 });
  await until(harness, a, { status: 'FAILED', restarts: 0, isPlanned: false });
});

test('after as many restarts in a row as it may it stays FAILED and says so; a restart by somebody begins anew', async () => {
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

test('while it waits a call says that it failed, why, when it starts again, and how to start it at once', async () => {
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

test('a delete ends the waiting, and its name is free', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  await harness.agents.delete(TENANT, id, null);
  await harness.create('a');
});

test('a restart by somebody ends the waiting', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  await harness.agents.restart(TENANT, id);
  expect(await seen(harness, id)).toMatchObject({ status: 'RUNNING', restarts: 1, isPlanned: false });
});

test('a restart that waits goes on after a restart of the service, and that of another node does not', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: LATE });
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', isPlanned: true });
  // By now it is due.
  await harness.database.updateTable('instances').set({ restart_at_ms: 1 }).execute();
  await harness.restartServer({ nodeId: 'node-2' });
  expect(await seen(harness, id)).toMatchObject({ status: 'FAILED' });
  await harness.restartServer();
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

test('one that ends while a service lets its last calls end starts again when there is another service', async () => {
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

test('the heir of a lost node goes on with the restarts that were due there, and with one that was cut off', async () => {
  await using harness = await Harness.open({ rowsFollow: undefined });
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
  // By now they are due.
  await rows().set({ node_id: 'heir', restart_at_ms: 1 }).execute();
  await harness.instances.reconcile();
  await until(harness, waits, { status: 'RUNNING', restarts: 1, isPlanned: false });
  await until(harness, isCutOff, { status: 'RUNNING', restarts: 2, isPlanned: false });
});

test('one that died while no service ran starts again when there is one', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: SOON });
  await harness.closeServer();
  harness.driver.kill(id, { code: 3 });
  await harness.newServer().start();
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

test('on-failure leaves one alone that ended with exit code 0 while no service ran', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: SOON });
  await harness.closeServer();
  harness.driver.kill(id, { code: 0 });
  await harness.newServer().start();
  expect(await seen(harness, id)).toMatchObject({ status: 'FAILED', restarts: 0, isPlanned: false });
});

test('who calls an agent whose end is just being written changes nothing of it', async () => {
  let ends = 0;
  const metrics = { created: () => undefined, exited: () => void ends++ };
  await using harness = await Harness.open({ metrics });
  const id = await harness.create('a', { restartPolicy: SOON });
  await harness.instances.recorded();
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

test('a start that fails counts as one of the row', async () => {
  await using harness = await Harness.open();
  const id = await harness.create('a', { restartPolicy: { ...SOON, maxRestarts: 2 } });
  harness.driver.faults.startError = unavailable('no room');
  harness.driver.kill(id, { code: 3 });
  await until(harness, id, { status: 'FAILED', restarts: 2, isPlanned: false });
  expect((await seen(harness, id)).statusReason).toContain('the restart failed: ');
});

test('a database that is away when it ends holds its restart up and does not end it', async () => {
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
      'a restart by the policy of an agent waits for the database',
    ),
  );
  isAway = false;
  await until(harness, id, { status: 'RUNNING', restarts: 1 });
});

import { describe, expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import { insertInstance } from '../../src/storage/queries/instances.ts';
import { gate, TENANT } from '../agents/harness.ts';
import { storedInstance } from '../parts/stored-instance.ts';
import { Everybody, type Server } from './everybody.ts';

/**
 * Delays one kind of record change in this server until the gate opens. Resolves `reached` at the first one.
 */
function holdBack(server: Server, held: string) {
  const { rows } = server.instances;
  const move = rows.move.bind(rows);
  const reached = gate();
  const free = gate();
  vi.spyOn(rows, 'move').mockImplementation(async (ref, event, patch) => {
    if (event === held) {
      reached.open();
      await free.opened;
    }
    return await move(ref, event, patch);
  });
  return { reached: reached.opened, free: free.open };
}

const agentsHold = ({ ledger }: Server) => ledger.reservations.by.agent;
const ONE_AGENT = { cpuMillis: 1000, memoryMb: 128, processes: 64 };
const NOTHING = { cpuMillis: 0, memoryMb: 0, processes: 0 };

describe('a late event', () => {
  test('a late exit event of an old sandbox does not fail the restarted agent or change the ledger', async () => {
    await using bed = await Everybody.open();
    const id = await bed.createAgent();
    const exit = holdBack(bed.server, 'exited');
    bed.driver.kill(id);
    await exit.reached;
    const restarted = bed.server.agents.restart(TENANT, id);
    exit.free();
    await restarted;
    await bed.untilInOrder();
    expect((await bed.server.agents.get(TENANT, id)).status).toBe('RUNNING');
    expect((await bed.call(id)).ok).toBe(true);
    expect(agentsHold(bed.server)).toEqual(ONE_AGENT);
  });

  test('a late exit event changes nothing while its agent is being deleted', async () => {
    await using bed = await Everybody.open();
    const id = await bed.createAgent();
    const exit = holdBack(bed.server, 'exited');
    bed.driver.kill(id);
    await exit.reached;
    const deleted = bed.server.agents.delete(TENANT, id, 0);
    exit.free();
    await deleted;
    await bed.untilInOrder();
    expect(await bed.rows()).toEqual([]);
    expect(agentsHold(bed.server)).toEqual(NOTHING);
  });

  test('an exit is reported once when the driver was unavailable at the exit', async () => {
    let isAway = false;
    let ends = 0;
    await using bed = await Everybody.open({
      drivers: async () => {
        if (isAway) throw unavailable('the driver is away');
        return bed.driver;
      },
      metrics: { created: () => undefined, exited: () => void ends++ },
    });
    const { id } = await bed.launchFunction();
    isAway = true;
    bed.driver.kill(id);
    await vi.waitFor(() => expect(bed.server.instances.live('function', id)).toBeUndefined());
    await new Promise(resolve => setImmediate(resolve));
    isAway = false;
    await bed.untilInOrder();
    expect([await bed.rows(), ends]).toEqual([[], 1]);
  });

  test.each(['restart', 'delete'] as const)('a slow probe of an old sandbox has no effect after %s', async what => {
    await using bed = await Everybody.open();
    const id = await bed.createAgent();
    await bed.server.close();
    const asked = gate();
    const answer = gate();
    // The service does not probe a runtime that answers at once.
    bed.driver.fallSilent(id, answer.opened);
    const inspect = vi.spyOn(bed.driver, 'inspect').mockImplementation(async () => {
      asked.open();
      await answer.opened;
      return { state: 'gone' };
    });
    const starting = bed.startServer({ adoption: { answerMs: 10, silenceMs: 60_000 } });
    await asked.opened;
    const server = await starting;
    if (what === 'restart') await server.agents.restart(TENANT, id);
    else await server.agents.delete(TENANT, id, 0);
    answer.open();
    inspect.mockRestore();
    await bed.untilInOrder();
    expect(bed.driver.runningIds).toEqual(what === 'restart' ? [id] : []);
    if (what === 'restart') expect((await bed.call(id)).ok).toBe(true);
    expect(agentsHold(server)).toEqual(what === 'restart' ? ONE_AGENT : NOTHING);
  });
});

describe('a paused server that shares its database with another server', () => {
  test.each(['node-1', 'node-2'])(
    'a paused server cannot overwrite a newer epoch (the other server is %s)',
    async nodeId => {
      await using bed = await Everybody.open();
      const id = await bed.createAgent();
      const slept = bed.server;
      const exit = holdBack(slept, 'exited');
      const awake = await bed.startServer({ nodeId });
      if (nodeId === 'node-2')
        await expect(awake.agents.restart(TENANT, id)).rejects.toMatchObject({ code: 'unavailable' });
      await bed.startServer();
      await bed.server.agents.restart(TENANT, id);
      await exit.reached;
      exit.free();
      await slept.instances.reconcile();
      await awake.instances.reconcile();
      await bed.untilInOrder();
      expect(await bed.server.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 1 });
      expect((await bed.call(id)).ok).toBe(true);
    },
  );

  test('a paused server deletes the current sandbox of an agent, not the sandbox in its memory', async () => {
    await using bed = await Everybody.open();
    // Exits are not reported, so the paused server still assumes that its sandbox runs.
    const wait = vi.spyOn(bed.driver, 'wait').mockImplementation(
      (_handle, signal) =>
        new Promise((_, reject) => {
          signal?.addEventListener('abort', () => reject(new Error('aborted')));
        }),
    );
    const id = await bed.createAgent();
    const slept = bed.server;
    await bed.startServer();
    await bed.server.agents.restart(TENANT, id);
    await slept.agents.delete(TENANT, id, 0);
    expect(bed.driver.instanceIds).toEqual([]);
    wait.mockRestore();
    await bed.untilInOrder();
  });

  test('a paused server fails its create without residue when the other server has undone the create', async () => {
    await using bed = await Everybody.open();
    const held = gate();
    Object.assign(bed.driver.faults, { startGate: held.opened, obeysAbort: false });
    const create = bed.createAgent();
    create.catch(() => undefined);
    await vi.waitFor(async () => expect(await bed.rows()).toHaveLength(1));
    await bed.startServer();
    expect(await bed.rows()).toEqual([]);
    held.open();
    await expect(create).rejects.toMatchObject({ code: 'not_found' });
    await bed.untilInOrder();
    expect(bed.driver.instanceIds).toEqual([]);
  });

  test('a paused server neither runs nor ends a job that the other server has started again', async () => {
    await using bed = await Everybody.open();
    const held = gate();
    Object.assign(bed.driver.faults, { startGate: held.opened, obeysAbort: false });
    const id = await bed.submitJob();
    await vi.waitFor(() => expect(bed.driver.starts).toHaveLength(1));
    const { steps } = bed.server;
    bed.driver.faults.startGate = undefined;
    await bed.startServer();
    const { instanceId } = await bed.untilJob(id, 'RUNNING');
    held.open();
    await vi.waitFor(async () => {
      await bed.server.instances.reconcile();
      expect(steps.taken).toContain('driver: remove');
    });
    await bed.untilInOrder();
    expect(bed.driver.instanceIds).toEqual([instanceId]);
    expect((await bed.job(id)).status).toBe('RUNNING');
  });
});

describe('an instance that is being ended', () => {
  test('a function instance in its pre_stop is neither adopted nor killed by a reconciler pass', async () => {
    await using bed = await Everybody.open();
    const inside = gate();
    const free = gate();
    let hasEnded = false;
    bed.driver.handlers.set('last', async () => {
      inside.open();
      await free.opened;
      hasEnded = true;
    });
    const instance = await bed.launchFunction({ preStop: 'last', preStopTimeoutMs: 10_000 });
    const stopped = instance.stop();
    await inside.opened;
    await bed.server.instances.reconcile();
    expect(bed.server.adopted).toEqual([]);
    expect(bed.driver.runningIds).toEqual([instance.id]);
    free.open();
    await stopped;
    expect(hasEnded).toBe(true);
    await bed.untilInOrder();
    expect(await bed.rows()).toEqual([]);
  });

  test('an instance whose removal failed is removed by the next reconciler pass with its reservation', async () => {
    await using bed = await Everybody.open();
    const id = await bed.createAgent();
    bed.driver.faults.removeFailures = 1;
    await expect(bed.server.agents.delete(TENANT, id, 0)).rejects.toMatchObject({ code: 'unavailable' });
    await bed.untilInOrder();
    expect(await bed.rows()).toEqual([]);
    expect(agentsHold(bed.server)).toEqual(NOTHING);
  });
});

describe('the server after a restart', () => {
  test('a restarted server waits for silent agents and silent function instances, then serves both', async () => {
    await using bed = await Everybody.open();
    const [agent, fn] = [await bed.createAgent(), await bed.launchFunction()];
    await bed.server.close();
    const awake = gate();
    for (const id of [agent, fn.id]) bed.driver.fallSilent(id, awake.opened);
    const { agents, adopted } = await bed.startServer({ adoption: { answerMs: 10, silenceMs: 60_000 } });
    expect([agents.liveInstances, adopted.length]).toEqual([0, 0]);
    expect(bed.driver.runningIds).toHaveLength(2);
    awake.open();
    await vi.waitFor(() => expect([agents.liveInstances, adopted.length]).toEqual([1, 1]));
    await bed.untilInOrder();
  });

  test('a restarted server ends instances that stay silent: an agent becomes FAILED, a function instance is removed', async () => {
    await using bed = await Everybody.open();
    const [agent, fn] = [await bed.createAgent(), await bed.launchFunction()];
    await bed.server.close();
    for (const id of [agent, fn.id]) bed.driver.fallSilent(id, new Promise(() => undefined));
    await bed.startServer({ adoption: { answerMs: 10, silenceMs: 50 } });
    await bed.untilInOrder();
    await vi.waitFor(async () =>
      expect((await bed.rows()).map(({ id, status }) => [id, status])).toEqual([[agent, 'FAILED']]),
    );
    expect(bed.driver.runningIds).toEqual([]);
  });

  test('a restarted server removes FAILED function instances and residual builds with their sandboxes', async () => {
    await using bed = await Everybody.open();
    bed.driver.buildsEnd = false;
    const fn = await bed.launchFunction();
    await bed.submitJob(['left-pad']);
    await vi.waitFor(async () =>
      expect((await bed.rows()).map(({ status }) => status)).toEqual(['RUNNING', 'RUNNING']),
    );
    bed.server.steps.kill();
    await bed.database.updateTable('instances').set({ status: 'FAILED' }).where('id', '=', fn.id).execute();
    await bed.database.deleteFrom('jobs').execute();
    await bed.startServer();
    await bed.untilInOrder();
    expect(await bed.rows()).toEqual([]);
    expect(bed.driver.instanceIds).toEqual([]);
  });

  test('a restarted server keeps records of starting jobs until the job service recovers them', async () => {
    await using bed = await Everybody.open();
    const { instances } = bed.server;
    const ids = { never: '', gone: '', begun: '' };
    for (const name of ['never', 'begun'] as const) {
      const row = storedInstance({ owner: { kind: 'job', key: name }, nodeId: 'node-1', concurrency: 0 });
      await insertInstance(bed.database, row);
      ids[name] = row.id;
    }
    const fn = await bed.launchFunction();
    const spec = { ...(bed.driver.starts[0] as (typeof bed.driver.starts)[0]), instanceId: ids.begun };
    await bed.driver.start(spec, new AbortController().signal);
    await instances.reconcile();
    expect((await bed.rows()).map(({ id }) => id).toSorted()).toEqual([ids.never, ids.begun, fn.id].toSorted());
    expect(bed.driver.runningIds).toContain(ids.begun);
    const { signal } = new AbortController();
    expect(await instances.commands.recover(ids.never, signal)).toBe('never');
    expect(await instances.commands.recover(ids.never, signal)).toBe('gone');
    const begun = await instances.commands.recover(ids.begun, signal);
    expect(begun).toMatchObject({ id: ids.begun, epoch: 1 });
    // The service found the running sandbox and recorded RUNNING.
    expect((await bed.rows()).find(({ id }) => id === ids.begun)).toMatchObject({ status: 'RUNNING' });
    if (typeof begun === 'object') await instances.commands.remove(begun);
    expect(bed.driver.runningIds).toEqual([fn.id]);
  });
});

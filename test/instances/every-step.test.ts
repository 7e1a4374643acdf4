import { describe, expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import { TENANT } from '../agents/harness.ts';
import { Everybody } from './everybody.ts';
import type { Fate } from './last-steps.ts';

/** An action of an owner; one server prepares it, and a fault interrupts it there. */
interface Story {
  readonly title: string;
  readonly prepare?: (bed: Everybody) => Promise<unknown>;
  readonly act: (bed: Everybody, prepared: never) => Promise<unknown>;
  /** Waits for the state that must follow, wherever the fault occurred. */
  readonly outcome?: (bed: Everybody) => Promise<unknown>;
}

const STORIES: readonly Story[] = [
  { title: 'the create of an agent', act: bed => bed.createAgent() },
  {
    title: 'the create of an agent whose code does not load',
    act: bed => bed.createAgent({ handler: 'nowhere' }),
  },
  {
    title: 'the create of an agent that dies in its initializer',
    act: bed => bed.createAgent({ initializer: 'die' }),
  },
  {
    title: 'the restart of an agent',
    prepare: bed => bed.createAgent(),
    act: (bed, id: string) => bed.server.agents.restart(TENANT, id),
  },
  {
    title: 'the replacement of an agent',
    prepare: bed => bed.createAgent(),
    act: bed => bed.replaceAgent(),
    outcome: untilOneServes,
  },
  {
    title: 'the replacement of an agent by one whose code does not load',
    prepare: bed => bed.createAgent(),
    act: bed => bed.replaceAgent({ handler: 'nowhere' }),
    outcome: untilOneServes,
  },
  {
    title: 'the replacement of an agent by one that dies in its initializer',
    prepare: bed => bed.createAgent(),
    act: bed => bed.replaceAgent({ initializer: 'die' }),
    outcome: untilOneServes,
  },
  {
    title: 'the delete of an agent',
    prepare: bed => bed.createAgent(),
    act: (bed, id: string) => bed.server.agents.delete(TENANT, id, 0),
  },
  {
    title: 'the end of an agent by itself',
    prepare: bed => bed.createAgent(),
    act: async (bed, id: string) => {
      bed.driver.kill(id);
      await vi.waitFor(async () => expect((await bed.rows())[0]?.status).toBe('FAILED'));
    },
  },
  {
    title: 'the end of an agent by itself, and its restart by its policy',
    prepare: bed => bed.createAgent({ restartPolicy: { policy: 'always', maxRestarts: null, backoffMs: 1 } }),
    act: async (bed, id: string) => {
      bed.driver.kill(id);
      await untilRestarted(bed);
    },
    outcome: untilRestarted,
  },
  { title: 'the start of an instance of a function', act: bed => bed.launchFunction() },
  {
    title: 'the start of an instance of a function whose code does not load',
    act: bed => bed.launchFunction({ handler: 'nowhere' }),
  },
  {
    title: 'the end of an instance of a function that is not needed any more',
    prepare: bed => bed.launchFunction(),
    act: (_bed, instance: Awaited<ReturnType<Everybody['launchFunction']>>) => instance.stop(),
  },
  {
    title: 'the end of an instance of a function by itself',
    prepare: bed => bed.launchFunction(),
    act: async (bed, { id }: { id: string }) => {
      bed.driver.kill(id);
      await vi.waitFor(async () => expect(await bed.rows()).toEqual([]));
    },
  },
  {
    title: 'the start of a job',
    act: async bed => await bed.untilJob(await bed.submitJob(), 'RUNNING'),
  },
  {
    title: 'the build of an environment and the start of its job',
    act: async bed => await untilNotPending(bed, await bed.submitJob(['left-pad'])),
  },
  {
    title: 'the start of a job whose sandbox cannot be started for a moment',
    prepare: async bed => {
      bed.driver.faults.startError = unavailable('not yet');
    },
    act: async bed => {
      const id = await bed.submitJob();
      await vi.waitFor(async () => expect((await bed.job(id)).message).toContain('the service retries'));
    },
  },
  {
    title: 'the look for a job that was being started when its server was killed',
    prepare: async bed => {
      bed.server.steps.fateOf = (_, name) => (name === 'driver: start' ? 'kills' : 'passes');
      await bed.submitJob();
      await bed.server.steps.died;
      await bed.makeServer();
    },
    act: async bed => {
      await bed.server.start();
      await untilNotPending(bed, 'j1');
    },
  },
  {
    title: 'the end of a job',
    prepare: async bed => await bed.untilJob(await bed.submitJob(), 'RUNNING'),
    act: async (bed, { id, instanceId }: { id: string; instanceId: string }) => {
      bed.driver.kill(instanceId, { code: 0, signal: null });
      await bed.untilJob(id, 'SUCCEEDED');
      await vi.waitFor(async () => expect(await bed.rows()).toEqual([]));
    },
  },
];

async function untilNotPending(bed: Everybody, id: string): Promise<void> {
  await vi.waitFor(async () => expect((await bed.job(id)).status).not.toBe('PENDING'));
}

/** Waits until one agent has the name and answers. */
async function untilOneServes(bed: Everybody): Promise<void> {
  await vi.waitFor(async () => {
    const { instances } = await bed.server.agents.list({ tenant: TENANT, name: 'a1', limit: 10, cursor: null });
    expect(instances.map(({ status, loadError }) => ({ status, loadError }))).toEqual([
      { status: 'RUNNING', loadError: '' },
    ]);
    expect(await bed.rows()).toHaveLength(1);
    expect(await bed.call(instances[0]?.id ?? '')).toMatchObject({ ok: true });
  });
}

async function untilRestarted(bed: Everybody): Promise<void> {
  await vi.waitFor(async () => {
    const [row] = await bed.rows();
    expect(row?.status).toBe('RUNNING');
    expect(row?.epoch).toBeGreaterThan(1);
  });
}

/** Repeats the story and applies `fate` to another step each time; returns the steps of the story. */
async function atEachStep(
  { prepare, act }: Story,
  fate: Fate,
  then: (bed: Everybody) => Promise<void>,
): Promise<readonly string[]> {
  for (let index = 0; ; index++) {
    await using bed = await Everybody.open();
    bed.driver.handlers.set('die', (_event, { exit }) => exit(3));
    const prepared = await prepare?.(bed);
    const { steps } = bed.server;
    const first = steps.taken.length;
    let isReached = false;
    steps.fateOf = (at, name) => {
      if (at !== first + index || (fate !== 'kills' && !name.startsWith('write'))) return 'passes';
      isReached = true;
      return fate;
    };
    const acted = Promise.allSettled([act(bed, prepared as never)]);
    await Promise.race([acted, steps.died]);
    if (!isReached && steps.taken.length <= first + index) return steps.taken.slice(first);
    try {
      await then(bed);
    } catch (error) {
      throw new Error(`${fate} at step ${index}: ${steps.taken.slice(first).join(', ')}`, { cause: error });
    }
    if (fate !== 'kills') steps.kill();
  }
}

describe.each(STORIES)('$title', story => {
  test('a new server restores order after the previous server was killed at any step', async () => {
    const taken = await atEachStep(story, 'kills', async bed => {
      bed.driver.faults.startError = undefined;
      await bed.startServer();
      await bed.untilInOrder();
      await story.outcome?.(bed);
      // No accepted operation is lost: an interrupted one is repeated or continues.
      const jobs = await bed.database.selectFrom('jobs').select(['status', 'message']).execute();
      for (const { status, message } of jobs) expect({ status, message }).not.toMatchObject({ status: 'FAILED' });
    });
    expect(taken.length).toBeGreaterThan(0);
  });

  test.each(['fails', 'fails late'] as const)('no residue remains when a write %s at any step', async fate => {
    await atEachStep(story, fate, async bed => {
      await bed.untilInOrder();
      await story.outcome?.(bed);
    });
  });
});

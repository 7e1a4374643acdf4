import { describe, expect, test, vi } from 'vitest';
import { failedPrecondition, unavailable } from '../../src/core/error.ts';
import type { RestartPolicy } from '../../src/core/restart-policy.ts';
import { CODE, fakePackages, gate, Harness, ledgerOf, TENANT } from './harness.ts';

/** Creates one agent with code and a secret on a machine that has capacity for no other. */
async function one(restartPolicy?: RestartPolicy) {
  const { packages, users, faults } = fakePackages();
  const ledger = ledgerOf(1);
  const lost = { driver: false, secret: false };
  const harness: Harness = await Harness.open({
    packages,
    ledger,
    drivers: async () => {
      if (lost.driver) throw unavailable('the driver is away');
      return harness.driver;
    },
    secrets: {
      valuesOf: async () => {
        if (lost.secret) throw failedPrecondition('the secret does not exist');
        return new Map([['s', 'value']]);
      },
      check: async () => undefined,
    },
  });
  const id = await harness.create('a', {
    handler: 'count',
    mounts: [CODE],
    env: { SECRET: { secret: 's' } },
    ...(restartPolicy && { restartPolicy }),
  });
  return {
    harness,
    id,
    ledger,
    lost,
    packages: faults,
    [Symbol.asyncDispose]: () => harness[Symbol.asyncDispose](),
    /**
     * Returns the epochs of the sandboxes that hold code, and the memory that the ledger reserves for agents.
     */
    held: () => ({
      code: [...users].map(user => Number(user.slice(id.length + 1))),
      memoryMb: ledger.reservations.by.agent.memoryMb,
    }),
  };
}

const NOTHING = { code: [], memoryMb: 0 };
/** The code and the memory that an agent holds while its sandbox has that epoch. */
const ALL_OF = (epoch: number) => ({ code: [epoch], memoryMb: 128 });

describe('the capacity of an agent during a restart', () => {
  test('the capacity of a restarting agent stays reserved when a function waits for capacity', async () => {
    await using bed = await one();
    const { harness, id, ledger, held } = bed;
    const size = { cpuMillis: 1000, memoryMb: 128, processes: 1 };
    ledger.onRelease(() => ledger.fits(size) && ledger.reserve('function', size));
    expect(ledger.fits(size)).toBe(false);
    expect(await harness.agents.restart(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 1 });
    expect(held()).toEqual(ALL_OF(2));
    await harness.agents.delete(TENANT, id, null);
    expect(ledger.reservations.by.function.memoryMb).toBe(128);
  });

  test('the capacity of a restarting agent is released when no sandbox starts', async () => {
    await using bed = await one();
    const { harness, id, held } = bed;
    harness.driver.faults.startError = unavailable('no start');
    await expect(harness.agents.restart(TENANT, id)).rejects.toThrow('no start');
    expect(held()).toEqual(NOTHING);
    harness.driver.faults.startError = undefined;
    await harness.agents.restart(TENANT, id);
    expect(held()).toEqual(ALL_OF(3));
    await harness.agents.delete(TENANT, id, null);
    expect(held()).toEqual(NOTHING);
  });

  test('the capacity of an exited agent must be reserved again by its restart', async () => {
    await using bed = await one();
    const { harness, id, held } = bed;
    harness.driver.kill(id);
    await vi.waitFor(() => expect(held()).toEqual(NOTHING));
    const other = await harness.create('b');
    await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(held()).toEqual({ code: [], memoryMb: 128 });
    await harness.agents.delete(TENANT, other, null);
    await harness.agents.restart(TENANT, id);
    expect(held()).toEqual(ALL_OF(3));
  });

  test('the capacity of a restarting agent is released once when a delete interrupts the restart', async () => {
    await using bed = await one();
    const { harness, id, held } = bed;
    const { opened } = gate();
    harness.driver.faults.startGate = opened;
    const restart = expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({ code: 'already_exists' });
    await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(2));
    expect(held()).toEqual(ALL_OF(2));
    await harness.agents.delete(TENANT, id, null);
    await restart;
    expect(held()).toEqual(NOTHING);
    expect(harness.driver.instanceIds).toEqual([]);
  });
});

describe('a restart that cannot be prepared', () => {
  type Bed = Awaited<ReturnType<typeof one>>;
  const lose: Record<string, (bed: Bed, isLost: boolean) => void> = {
    'the code package': ({ packages }, isLost) => {
      packages.missing = isLost;
    },
    'the secret': ({ lost }, isLost) => {
      lost.secret = isLost;
    },
    'the driver': ({ lost }, isLost) => {
      lost.driver = isLost;
    },
  };

  test.each(Object.keys(lose))(
    'a restart without %s leaves the agent unchanged, and succeeds when it returns',
    async what => {
      await using bed = await one();
      const { harness, id, held } = bed;
      expect(await harness.value(id)).toBe(1);
      const before = await harness.agents.get(TENANT, id);
      lose[what]?.(bed, true);
      await expect(harness.agents.restart(TENANT, id)).rejects.toThrow(what);
      lose[what]?.(bed, false);
      await harness.instances.reconcile();
      expect(await harness.agents.get(TENANT, id)).toEqual(before);
      expect(await harness.value(id)).toBe(2);
      expect(held()).toEqual(ALL_OF(1));
      expect(await harness.agents.restart(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 1 });
      expect(held()).toEqual(ALL_OF(2));
      await harness.agents.delete(TENANT, id, null);
      expect(held()).toEqual(NOTHING);
    },
  );

  test('a restart leaves the agent unchanged when the server stops during the preparation', async () => {
    await using bed = await one();
    const { harness, id, packages, held } = bed;
    const { opened, open } = gate();
    packages.gate = opened;
    const restart = expect(harness.agents.restart(TENANT, id)).rejects.toThrow('the server is stopping');
    await vi.waitFor(() => expect(packages.asked).toBe(2));
    const closed = harness.agents.close({ stopAgents: false, graceMs: 0 });
    open();
    await Promise.all([restart, closed]);
    expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 0 });
    expect(harness.driver.runningIds).toEqual([id]);
    expect(held()).toEqual(ALL_OF(1));
  });

  test('a restart yields to a delete during the preparation', async () => {
    await using bed = await one();
    const { harness, id, packages, held } = bed;
    const { opened, open } = gate();
    packages.gate = opened;
    const restart = expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({ code: 'already_exists' });
    await vi.waitFor(() => expect(packages.asked).toBe(2));
    const deleted = harness.agents.delete(TENANT, id, null);
    open();
    await Promise.all([restart, deleted]);
    expect(held()).toEqual(NOTHING);
    expect(harness.driver.instanceIds).toEqual([]);
  });

  test('a restart that fails in its preparation does not cancel a restart that is planned by the policy', async () => {
    await using bed = await one({ policy: 'on-failure', maxRestarts: 1000, backoffMs: 50 });
    const { harness, id, packages } = bed;
    packages.missing = true;
    harness.driver.kill(id, { code: 3 });
    await vi.waitFor(async () => expect((await harness.agents.get(TENANT, id)).restartAtMs).toBeGreaterThan(0));
    await expect(harness.agents.restart(TENANT, id)).rejects.toMatchObject({
      code: expect.stringMatching(/failed_precondition|already_exists/),
    });
    packages.missing = false;
    await vi.waitFor(async () =>
      expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 1 }),
    );
  });

  test('a policy restart that fails in its preparation counts towards maxRestarts, and the record has the reason', async () => {
    await using bed = await one({ policy: 'on-failure', maxRestarts: 2, backoffMs: 1 });
    const { harness, id, packages } = bed;
    packages.missing = true;
    harness.driver.kill(id, { code: 3 });
    await vi.waitFor(async () =>
      expect(await harness.agents.get(TENANT, id)).toMatchObject({
        status: 'FAILED',
        restartAtMs: 0,
        statusReason:
          'the restart failed: the code package does not exist; it was restarted 2 times in a row, which is as often as its restart policy allows',
      }),
    );
  });
});

describe('a restart whose old sandbox cannot be removed', () => {
  const REASON = 'the restart failed: the removal failed on demand';

  /** Creates an agent whose old sandbox still exists, and still runs when `stopFailures` is above 0. */
  async function stuck(stopFailures: number) {
    const bed = await one();
    Object.assign(bed.harness.driver.faults, { stopFailures, removeFailures: 1 });
    await expect(bed.harness.agents.restart(TENANT, bed.id)).rejects.toThrow('the removal failed on demand');
    return bed;
  }

  test.each([0, 1])(
    'a restart whose old sandbox stays leaves the agent FAILED until a reconciler pass ends the residue (%i)',
    async stops => {
      await using bed = await stuck(stops);
      const { harness, id, held } = bed;
      expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'FAILED', statusReason: REASON });
      await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'not_found' });
      expect(harness.agents.liveInstances).toBe(0);
      // The agent holds its reservation as long as residue of the sandbox may run.
      expect(held()).toEqual(ALL_OF(1));
      await harness.instances.reconcile();
      expect(harness.driver.runningIds).toEqual([]);
      expect(held()).toEqual(NOTHING);
      expect(await harness.agents.restart(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 2 });
      expect(harness.driver.instanceIds).toEqual([id]);
      expect(held()).toEqual(ALL_OF(3));
    },
  );

  test('a restart whose old sandbox stays can be repeated at once in the reserved capacity', async () => {
    await using bed = await stuck(1);
    const { harness, id, held } = bed;
    await harness.agents.restart(TENANT, id);
    expect(harness.driver.instanceIds).toEqual([id]);
    expect(held()).toEqual(ALL_OF(3));
    expect(await harness.value(id)).toBe(1);
  });

  test('a restart whose old sandbox stays does not prevent a delete', async () => {
    await using bed = await stuck(1);
    await bed.harness.agents.delete(TENANT, bed.id, null);
    expect(bed.harness.driver.instanceIds).toEqual([]);
    expect(bed.held()).toEqual(NOTHING);
  });
});

test('a delete succeeds and calls are rejected when the driver is unavailable', async () => {
  await using bed = await one();
  const { harness, id, lost, held } = bed;
  lost.driver = true;
  await harness.agents.delete(TENANT, id, null);
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'not_found' });
  expect(harness.driver.instanceIds).toEqual([]);
  expect(held()).toEqual(NOTHING);
});

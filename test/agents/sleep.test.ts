import { expect, test, vi } from 'vitest';
import { unavailable } from '../../src/core/error.ts';
import type { InstanceSpec } from '../../src/core/instance.ts';
import { LiveInstance } from '../../src/instances/live-instance.ts';
import { CODE, fakePackages, gate, Harness, ledgerOf, TENANT } from './harness.ts';

/** Creates one durable agent on a machine that has room for no other. */
async function one(changes: Partial<InstanceSpec> = {}) {
  const { packages, users } = fakePackages();
  const ledger = ledgerOf(1);
  const harness = await Harness.open({ packages, ledger });
  harness.driver.handlers.set('wake', (_event, { init }) => init.durable?.wake.reason);
  const begun = gate();
  const waits = gate();
  harness.driver.handlers.set('wait', async () => {
    begun.open();
    await waits.opened;
    return 'done';
  });
  const id = await harness.create('a', { handler: 'count', mounts: [CODE], durable: { schema: 1 }, ...changes });
  const { agents, driver } = harness;
  return {
    harness,
    agents,
    driver,
    id,
    /** Resolves when the handler `wait` runs, which ends with `endWait`. */
    waiting: begun.opened,
    endWait: waits.open,
    [Symbol.asyncDispose]: () => harness[Symbol.asyncDispose](),
    held: () => ({ code: users.size, memoryMb: ledger.reservations.by.agent.memoryMb }),
    status: async () => (await agents.get(TENANT, id)).status,
  };
}

const NOTHING = { code: 0, memoryMb: 0 };
const ALL = { code: 1, memoryMb: 128 };

test('a sleeping agent has no sandbox, no reservation and no code, and its next call starts it', async () => {
  await using bed = await one();
  const { harness, agents, driver, id, held } = bed;
  expect(held()).toEqual(ALL);
  expect(await agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING', sleptAtMs: expect.any(Number) });
  expect(driver.instanceIds).toEqual([]);
  expect(held()).toEqual(NOTHING);
  expect(agents.liveInstances).toBe(0);
  expect(await agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
  expect(await harness.invoke(id)).toMatchObject({ ok: true, woke: 'call' });
  expect(await harness.invoke(id)).not.toHaveProperty('woke');
  expect(await agents.get(TENANT, id)).toMatchObject({ status: 'RUNNING', restarts: 0, wakes: 1 });
  expect(held()).toEqual(ALL);
});

test('a record counts restarts without wakes', async () => {
  await using bed = await one();
  const { agents, id } = bed;
  await agents.restart(TENANT, id);
  await agents.sleep(TENANT, id);
  await agents.wake(TENANT, id);
  await agents.sleep(TENANT, id);
  await agents.restart(TENANT, id);
  expect(await agents.get(TENANT, id)).toMatchObject({ restarts: 1, wakes: 2 });
});

test('a wake tells the code its reason, and a wake of a running agent starts nothing', async () => {
  await using bed = await one({ handler: 'wake' });
  const { harness, agents, id } = bed;
  expect(await harness.value(id)).toBe('created');
  await agents.sleep(TENANT, id);
  expect(await agents.wake(TENANT, id)).toMatchObject({ woken: true, instance: { status: 'RUNNING' } });
  expect(await agents.wake(TENANT, id)).toMatchObject({ woken: false });
  expect(await harness.value(id)).toBe('request');
  await agents.sleep(TENANT, id);
  expect(await harness.value(id)).toBe('call');
});

test('concurrent uses of a sleeping agent share one start', async () => {
  await using bed = await one();
  const { harness, agents, driver, id } = bed;
  await agents.sleep(TENANT, id);
  const calls = Array.from({ length: 20 }, () => harness.value(id));
  await Promise.all([agents.wake(TENANT, id), agents.access(TENANT, id), ...calls]);
  expect(driver.starts).toHaveLength(2);
});

test('calls that arrive while the agent falls asleep wait and wake it', async () => {
  await using bed = await one();
  const { harness, agents, driver, id } = bed;
  const { opened, open } = gate();
  driver.faults.removeGate = opened;
  const sleep = agents.sleep(TENANT, id);
  await vi.waitFor(async () => expect(await bed.status()).toBe('SLEEPING'));
  const calls = [harness.value(id), harness.value(id)];
  open();
  expect(await sleep).toMatchObject({ id });
  expect(await Promise.all(calls)).toEqual([1, 2]);
  expect(driver.starts).toHaveLength(2);
});

test('an agent that is in use is not put to sleep, and the refusal names the uses', async () => {
  await using bed = await one({ handler: 'wait' });
  const { harness, agents, id } = bed;
  const call = harness.value(id);
  await bed.waiting;
  await expect(agents.sleep(TENANT, id)).rejects.toMatchObject({
    code: 'failed_precondition',
    body: { awake_because: ['call 1'] },
  });
  bed.endWait();
  expect(await call).toBe('done');
  expect(await agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
});

test('a sleep with a wait waits for the end of the calls', async () => {
  await using bed = await one({ handler: 'wait' });
  const { harness, agents, id } = bed;
  const call = harness.value(id);
  await bed.waiting;
  const sleep = agents.sleep(TENANT, id, { waitMs: 600_000 });
  bed.endWait();
  expect(await call).toBe('done');
  expect(await sleep).toMatchObject({ status: 'SLEEPING' });
});

test('a sleep fails with the uses when its wait is over or its caller has left', async () => {
  await using bed = await one({ handler: 'wait' });
  const { harness, agents, id } = bed;
  const call = harness.value(id);
  await bed.waiting;
  const inUse = { code: 'failed_precondition', body: { awake_because: ['call 1'] } };
  await expect(agents.sleep(TENANT, id, { waitMs: 1 })).rejects.toMatchObject(inUse);
  const leaving = new AbortController();
  const sleep = agents.sleep(TENANT, id, { waitMs: 600_000, signal: leaving.signal });
  leaving.abort();
  await expect(sleep).rejects.toMatchObject(inUse);
  expect(await bed.status()).toBe('RUNNING');
  bed.endWait();
  await call;
});

test('a forced sleep fails the open call', async () => {
  await using bed = await one({ handler: 'wait' });
  const { harness, agents, driver, id } = bed;
  const call = harness.value(id);
  await bed.waiting;
  const failed = expect(call).rejects.toThrow('instance exited: it sleeps');
  expect(await agents.sleep(TENANT, id, { isForced: true })).toMatchObject({ status: 'SLEEPING' });
  await failed;
  expect(driver.instanceIds).toEqual([]);
  bed.endWait();
});

test('an agent whose code saves all the time is in use', async () => {
  await using bed = await one();
  const { agents, id } = bed;
  const saving = vi.spyOn(LiveInstance.prototype, 'saving', 'get').mockReturnValue(Promise.resolve());
  await expect(agents.sleep(TENANT, id)).rejects.toMatchObject({ body: { awake_because: ['save 1'] } });
  expect(await bed.status()).toBe('RUNNING');
  saving.mockRestore();
  expect(await agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
});

test('a call that must not wake fails, and the agent stays asleep', async () => {
  await using bed = await one();
  const { harness, agents, id } = bed;
  await agents.sleep(TENANT, id);
  await expect(harness.invoke(id, {}, { mayWake: false })).rejects.toThrow(`instance ${id} is asleep`);
  expect(await bed.status()).toBe('SLEEPING');
});

test('an agent that is not durable, that has failed or of another tenant is not put to sleep', async () => {
  await using bed = await one();
  const { harness, agents, driver, id } = bed;
  await expect(agents.sleep('other', id)).rejects.toMatchObject({ code: 'not_found' });
  await expect(agents.wake('other', id)).rejects.toMatchObject({ code: 'not_found' });
  driver.kill(id);
  await vi.waitFor(async () => expect(await bed.status()).toBe('FAILED'));
  await expect(agents.sleep(TENANT, id)).rejects.toThrow('is not running');
  await agents.delete(TENANT, id, null);
  const plain = await harness.create('plain');
  await expect(agents.sleep(TENANT, plain)).rejects.toThrow('is not durable');
});

test('a paused agent can be put to sleep', async () => {
  await using bed = await one();
  const { harness, agents, driver, id, held } = bed;
  await agents.pause(TENANT, id);
  expect(await agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING', pausedAtMs: 0 });
  expect(driver.instanceIds).toEqual([]);
  expect(held()).toEqual(NOTHING);
  expect(await harness.value(id)).toBe(1);
});

test('a sleeping agent is deleted without a start', async () => {
  await using bed = await one();
  const { agents, driver, id } = bed;
  await agents.sleep(TENANT, id);
  await agents.delete(TENANT, id, null);
  expect(driver.starts).toHaveLength(1);
  await expect(agents.get(TENANT, id)).rejects.toMatchObject({ code: 'not_found' });
});

test('a sleeping agent stays asleep when the service restarts', async () => {
  await using bed = await one();
  const { harness, id, agents } = bed;
  await agents.sleep(TENANT, id);
  await harness.restartServer();
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
  expect(await harness.value(id)).toBe(1);
});

test('the next service removes the sandbox of an agent whose sleep was interrupted', async () => {
  await using bed = await one();
  const { harness, agents, driver, id } = bed;
  driver.faults.removeFailures = 1;
  await expect(agents.sleep(TENANT, id)).rejects.toThrow();
  expect(await bed.status()).toBe('SLEEPING');
  expect(driver.instanceIds).toEqual([id]);
  await harness.restartServer();
  expect(driver.instanceIds).toEqual([]);
  expect(await harness.agents.get(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
});

test('a wake removes what an interrupted sleep has left', async () => {
  await using bed = await one();
  const { harness, agents, driver, id, held } = bed;
  driver.faults.removeFailures = 1;
  await expect(agents.sleep(TENANT, id)).rejects.toThrow();
  expect(await harness.value(id)).toBe(1);
  expect(driver.instanceIds).toEqual([id]);
  await agents.sleep(TENANT, id);
  expect(held()).toEqual(NOTHING);
});

test('a sleeping agent for which there is no room stays asleep', async () => {
  await using bed = await one();
  const { harness, agents, id } = bed;
  await agents.sleep(TENANT, id);
  const other = await harness.create('b');
  await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'resource_exhausted' });
  expect(await bed.status()).toBe('SLEEPING');
  await agents.delete(TENANT, other, null);
  expect(await harness.value(id)).toBe(1);
});

/** Creates a sleeping agent and an idle one, on a machine that has room for one of them. */
async function sleeperAnd(idle: Partial<InstanceSpec>) {
  const bed = await one();
  await bed.agents.sleep(TENANT, bed.id);
  const other = await bed.harness.create('b', { mounts: [CODE], durable: { schema: 1, sleepMs: 600_000 }, ...idle });
  return Object.assign(bed, { other });
}

test('a wake without room puts the durable agent to sleep that is idle for a second', async () => {
  await using bed = await sleeperAnd({});
  const { harness, agents, id, other } = bed;
  await vi.waitFor(async () => expect(await harness.value(id)).toBe(1), { timeout: 20_000 });
  expect(await agents.get(TENANT, other)).toMatchObject({ status: 'SLEEPING' });
  expect(bed.held()).toEqual(ALL);
});

test.each([
  ['is not durable', { durable: undefined, idleMs: 600_000 }],
  ['sleeps only on request', { durable: { schema: 1, sleepMs: 0 } }],
  ['has an idle time', { durable: { schema: 1, sleepMs: 600_000 }, idleMs: 600_000 }],
] as const)('a wake without room leaves an agent alone that %s', async (_, idle) => {
  await using bed = await sleeperAnd(idle as Partial<InstanceSpec>);
  const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 60_000);
  try {
    await expect(bed.harness.invoke(bed.id)).rejects.toMatchObject({ code: 'resource_exhausted' });
  } finally {
    clock.mockRestore();
  }
  expect(bed.driver.runningIds).toEqual([bed.other]);
});

test('a wake without room leaves an agent alone whose processes work or that runs a call', async () => {
  await using bed = await sleeperAnd({ handler: 'wait' });
  const { harness, driver, id, other } = bed;
  let cpuMicros = 0;
  driver.stats = async () => {
    cpuMicros += 1_000_000;
    return { memoryBytes: 0, cpuMicros, processes: 1 };
  };
  const nowMs = performance.now() + 60_000;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs + cpuMicros / 1_000);
  try {
    await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(cpuMicros).toBe(2_000_000);
    const call = harness.invoke(other);
    await bed.waiting;
    await expect(harness.invoke(id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(cpuMicros).toBe(2_000_000);
    bed.endWait();
    await call;
  } finally {
    clock.mockRestore();
  }
  expect(driver.runningIds).toEqual([other]);
});

test('a create above maxAwake puts the durable agent to sleep that is idle for a second', async () => {
  await using harness = await Harness.open({ maxAwake: 1 });
  const { agents } = harness;
  const first = await harness.create('first', { durable: { schema: 1, sleepMs: 600_000 } });
  await vi.waitFor(async () => await harness.create('second', {}), { timeout: 20_000 });
  expect(await agents.get(TENANT, first)).toMatchObject({ status: 'SLEEPING' });
  await expect(harness.create('third')).rejects.toMatchObject({
    code: 'resource_exhausted',
    message: expect.stringContaining('1 agents are awake already (agents.maxAwake)'),
  });
  await expect(harness.invoke(first)).rejects.toMatchObject({ code: 'resource_exhausted' });
});

test('a wake whose sandbox does not start leaves the agent FAILED, and a later call starts it', async () => {
  await using bed = await one();
  const { harness, agents, driver, id, held } = bed;
  await agents.sleep(TENANT, id);
  driver.faults.startError = unavailable('no start');
  await expect(harness.invoke(id)).rejects.toThrow('no start');
  expect(await bed.status()).toBe('FAILED');
  expect(held()).toEqual(NOTHING);
  driver.faults.startError = undefined;
  const later = () => harness.invoke(id);
  await vi.waitFor(async () => expect(await later()).toMatchObject({ ok: true, woke: 'crash' }), { timeout: 20_000 });
});

test('calls soon after a wake that failed are refused with its reason and the time of the next try', async () => {
  await using bed = await one();
  const { harness, agents, driver, id } = bed;
  await agents.sleep(TENANT, id);
  driver.faults.startError = unavailable('no start');
  const clock = vi.spyOn(performance, 'now').mockReturnValue(1_000_000);
  try {
    const refusals: unknown[] = [];
    const call = () => harness.invoke(id).catch((error: unknown) => refusals.push(error));
    for (const atMs of [1_000_000, 1_000_999, 1_001_000, 1_001_001, 1_003_000, 1_003_001]) {
      clock.mockReturnValue(atMs);
      await call();
    }
    const texts = refusals.map(error => (error as Error).message.replace(/.*; /, ''));
    expect(texts).toEqual([
      'no start',
      'the next try is in 1 s',
      'no start',
      'the next try is in 2 s',
      'no start',
      'the next try is in 4 s',
    ]);
    expect(refusals.at(-1)).toMatchObject({ code: 'unavailable', retryAfterSeconds: 4 });
    driver.faults.startError = undefined;
    await agents.restart(TENANT, id);
    expect(await harness.value(id)).toBe(1);
  } finally {
    clock.mockRestore();
  }
});

/** Creates an agent whose handler notes the entries of its calls, and then does `after`. */
async function withEntry(after: (entry: string | undefined, signal: AbortSignal) => unknown = () => undefined) {
  const bed = await one();
  const entries: (string | undefined)[] = [];
  bed.driver.handlers.set('entry', (_event, { header, signal }) => {
    entries.push(header.entry);
    return after(header.entry, signal);
  });
  await bed.agents.delete(TENANT, bed.id, null);
  const durable = { schema: 1, entries: { sleep: 'app.on_sleep' } };
  const id = await bed.harness.create('hooked', { handler: 'entry', mounts: [CODE], durable });
  return { bed, id, entries, [Symbol.asyncDispose]: () => bed[Symbol.asyncDispose]() };
}

test('the sleep entry runs before an agent falls asleep', async () => {
  await using hooked = await withEntry();
  const { bed, id, entries } = hooked;
  await bed.harness.value(id);
  expect(await bed.agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
  expect(entries).toEqual([undefined, 'sleep']);
});

test('an agent whose sleep entry fails falls asleep, and the log says why', async () => {
  await using hooked = await withEntry(() => {
    throw new Error('no');
  });
  const { bed, id } = hooked;
  expect(await bed.agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
  expect(bed.harness.logs).toContainEqual(expect.objectContaining({ level: 'warn', message: 'sleep entry failed' }));
});

test('an agent whose sleep entry does not end falls asleep', { timeout: 60_000 }, async () => {
  await using hooked = await withEntry(() => new Promise(() => undefined));
  const { bed, id } = hooked;
  expect(await bed.agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' });
  expect(bed.harness.logs).toContainEqual(expect.objectContaining({ message: 'sleep entry did not end' }));
});

test('a call that arrives during the sleep entry keeps the agent awake', async () => {
  const begun = gate();
  const ends = gate();
  await using hooked = await withEntry(async entry => {
    if (entry !== 'sleep') return 'called';
    begun.open();
    await ends.opened;
    return undefined;
  });
  const { bed, id } = hooked;
  const sleep = expect(bed.agents.sleep(TENANT, id)).rejects.toMatchObject({ body: { awake_because: ['call 1'] } });
  await begun.opened;
  const call = bed.harness.value(id);
  const blocked = bed.harness.value(id);
  ends.open();
  expect(await call).toBe('called');
  await blocked;
  await sleep.catch(() => undefined);
});

test('a forced sleep does not run the sleep entry', async () => {
  await using hooked = await withEntry();
  const { bed, id, entries } = hooked;
  await bed.agents.sleep(TENANT, id, { isForced: true });
  expect(entries).toEqual([]);
});

/** Ends the sandbox of an agent that runs, and waits until its record says so. */
async function kill({ driver, id, status }: Awaited<ReturnType<typeof one>>) {
  driver.kill(id);
  await vi.waitFor(async () => expect(await status()).toBe('FAILED'), { timeout: 20_000 });
}

test('an agent that ends three times soon after its start is not started for a second', async () => {
  await using bed = await one();
  const { harness, agents, id } = bed;
  // Whole, so that sums of it are exact.
  const startedMs = Math.ceil(performance.now());
  const clock = vi.spyOn(performance, 'now').mockReturnValue(startedMs);
  try {
    await kill(bed);
    await agents.wake(TENANT, id);
    await kill(bed);
    await agents.wake(TENANT, id);
    await kill(bed);
    await expect(harness.invoke(id)).rejects.toMatchObject({
      message: expect.stringContaining('it has ended 3 times in a row within 60 s of its start'),
      retryAfterSeconds: 1,
    });
    clock.mockReturnValue(startedMs + 1_001);
    await agents.wake(TENANT, id);
    await kill(bed);
    await expect(harness.invoke(id)).rejects.toMatchObject({ retryAfterSeconds: 2 });
    await agents.restart(TENANT, id);
    await kill(bed);
    expect(await harness.value(id)).toBe(1);
  } finally {
    clock.mockRestore();
  }
});

test('a call that succeeds ends a crash loop', async () => {
  await using bed = await one();
  const { harness } = bed;
  for (let ends = 0; ends < 4; ends++) {
    await kill(bed);
    expect(await harness.invoke(bed.id)).toMatchObject({ ok: true, woke: 'crash' });
  }
});

test('an agent without use falls asleep after its time, and again after a wake', async () => {
  await using bed = await one({ durable: { schema: 1, sleepMs: 60 } });
  const { harness, id } = bed;
  await vi.waitFor(async () => expect(await bed.status()).toBe('SLEEPING'), { timeout: 20_000 });
  await harness.value(id);
  await vi.waitFor(async () => expect(await bed.status()).toBe('SLEEPING'), { timeout: 20_000 });
});

test('an agent without use whose processes work falls asleep only when they wait', async () => {
  await using bed = await one({ durable: { schema: 1, sleepMs: 60 } });
  const { driver } = bed;
  let reads = 0;
  driver.stats = async () => {
    reads += 1;
    // A second of processor time between two reads, which are 50 ms apart.
    return { memoryBytes: 0, cpuMicros: Math.min(reads, 10) * 1_000_000, processes: 1 };
  };
  await vi.waitFor(async () => expect(await bed.status()).toBe('SLEEPING'), { timeout: 20_000 });
  expect(reads).toBeGreaterThan(10);
});

test('an agent whose processor time cannot be read falls asleep', async () => {
  await using bed = await one({ durable: { schema: 1, sleepMs: 60 } });
  bed.driver.stats = () => Promise.reject(unavailable('no stats'));
  await vi.waitFor(async () => expect(await bed.status()).toBe('SLEEPING'), { timeout: 20_000 });
});

test('an agent with an open command is not put to sleep', async () => {
  await using bed = await one();
  const { agents, id } = bed;
  const access = await agents.access(TENANT, id);
  const command = { argv: ['sleep'], workingDir: '', env: {}, terminal: null };
  const running = await access.openExec(command, new AbortController().signal);
  await expect(agents.sleep(TENANT, id)).rejects.toMatchObject({ body: { awake_because: ['access 1'] } });
  running.kill();
  await running.ended;
  await vi.waitFor(async () => expect(await agents.sleep(TENANT, id)).toMatchObject({ status: 'SLEEPING' }));
});

test('close with stopAgents puts a durable agent to sleep, and deletes an agent that is not durable', async () => {
  await using bed = await one();
  const { harness, agents, driver } = bed;
  const plain = await harness.create('plain', { mounts: [CODE], memoryMb: 0 });
  expect(await agents.close({ stopAgents: true, graceMs: 1000 })).toEqual({ agentsLeft: 0 });
  expect(driver.instanceIds).toEqual([]);
  expect(await bed.status()).toBe('SLEEPING');
  await expect(agents.get(TENANT, plain)).rejects.toThrow('instance not found');
});

test.each([
  ['SLEEPING', async (bed: Awaited<ReturnType<typeof one>>) => await bed.agents.sleep(TENANT, bed.id)],
  ['FAILED', async (bed: Awaited<ReturnType<typeof one>>) => bed.driver.kill(bed.id)],
])('close with stopAgents keeps a durable agent that is %s', async (status, reach) => {
  await using bed = await one();
  await reach(bed);
  await vi.waitFor(async () => expect(await bed.status()).toBe(status));
  expect(await bed.agents.close({ stopAgents: true, graceMs: 1000 })).toEqual({ agentsLeft: 0 });
  expect(await bed.status()).toBe(status);
});

test('close with stopAgents lets a durable agent run on that is in use', async () => {
  await using bed = await one({ handler: 'wait' });
  const { harness, agents, driver, id } = bed;
  const call = harness.invoke(id);
  await bed.waiting;
  expect(await agents.close({ stopAgents: true, graceMs: 1 })).toEqual({ agentsLeft: 1 });
  expect(driver.runningIds).toEqual([id]);
  expect(await bed.status()).toBe('RUNNING');
  bed.endWait();
  await call.catch(() => undefined);
});

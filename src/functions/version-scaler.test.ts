import { describe, expect, it } from 'vitest';
import { FakeClock, settle } from '../../test/fakes/fake-clock.ts';
import { machineOf } from '../../test/functions/harness.ts';
import { FakeInstance, HOME, numberOf, POLICY, session, World } from '../../test/functions/world.ts';
import { Capacity } from './capacity.ts';
import { CodeFailure } from './function-instance.ts';

describe('VersionScaler: starting', () => {
  it('VersionScaler starts an instance immediately for the first call', async () => {
    const world = new World();
    const lease = await world.acquire();
    expect(lease.cold).toBe(true);
    expect(world.started).toBe(1);
  });

  it('VersionScaler starts one instance for 60 parallel first calls of one session', async () => {
    const world = new World({ concurrency: 10, maxInstances: 100 });
    world.holdStarts = true;
    const calls = Array.from({ length: 60 }, (_, i) => world.acquire({ session: session('s', i % 2 ? -1 : 1) }));
    await settle();
    expect(world.starting.length).toBe(1);
    for (const start of world.starting.splice(0)) start.ok();
    for (const call of calls) (await call).release('done');
    expect(world.alive.size).toBe(1);
  });

  it('VersionScaler starts 6 instances, not 60, for 60 parallel first calls with concurrency 10', async () => {
    const world = new World({ concurrency: 10, maxInstances: 100 });
    world.holdStarts = true;
    const calls = Array.from({ length: 60 }, () => world.acquire());
    await settle();
    expect(world.starting.length).toBe(6);
    for (const start of world.starting.splice(0)) start.ok();
    await Promise.all(calls);
    expect(world.alive.size).toBe(6);
  });

  it('a waiting call gets a freed slot when the slot is free before a new instance has started', async () => {
    const world = new World({ concurrency: 1 });
    const first = await world.acquire();
    world.holdStarts = true;
    const second = world.acquire();
    await settle();
    expect(world.starting.length).toBe(1);
    first.release('done');
    expect((await second).instance.id).toBe(first.instance.id);
  });

  it('all groups without a label together never exceed maxInstances', async () => {
    const world = new World({ concurrency: 1, maxInstances: 2 });
    await world.acquire();
    await world.acquire({}, { memoryMb: 1024 });
    const third = world.acquire({}, { sessionContext: 'c' });
    await settle();
    expect(world.alive.size).toBe(2);
    expect(await Promise.race([third, Promise.resolve('waits')])).toBe('waits');
  });

  it('VersionScaler ends an idle instance of another group when the maximum is reached', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    (await world.acquire()).release('done');
    const other = await world.acquire({}, { sessionContext: 'c' });
    expect(other.instance.id).toBe('i2');
    expect(world.alive.size).toBe(1);
  });

  it('a failed start leaves its capacity under the maximum to another waiting group', async () => {
    const world = new World({ maxInstances: 1 });
    world.holdStarts = true;
    const failed = world.acquire();
    const other = world.acquire({}, { sessionContext: 'c' });
    world.starting.shift()?.fail(new Error('no start'));
    await expect(failed).rejects.toThrow('no start');
    expect(world.starting.map(({ key }) => key.sessionContext)).toEqual(['c']);
    world.starting.shift()?.ok();
    await other;
  });

  it('an idle instance ends immediately when another group waits for capacity under the maximum', async () => {
    const world = new World({ concurrency: 1, maxInstances: 2, scaleDownMs: 60_000 });
    const leases = [await world.acquire(), await world.acquire()];
    const other = world.acquire({}, { sessionContext: 'c' });
    await settle();
    for (const lease of leases) lease.release('done');
    expect((await other).instance.id).toBe('i3');
    // Only one instance had to end for the waiting group.
    expect(world.alive.size).toBe(2);
  });

  it('an instance released by a session ends immediately when another group waits for its slot', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, scaleDownMs: 60_000 });
    (await world.acquire({ session: session('a', 1, 5000) })).release('done');
    const other = world.acquire({}, { sessionContext: 'c' });
    await world.clock.advance(5001);
    expect((await other).instance.id).toBe('i2');
  });

  it('an idle instance ends immediately when another function waits for capacity on the machine', async () => {
    const capacity = new Capacity({
      maxInstances: 2,
      maxInstancesPerTenant: 2,
      machine: machineOf(4000, 4096),
    });
    const policy = { concurrency: 1, scaleDownMs: 60_000 };
    const [world, second] = [new World(policy, {}, capacity), new World(policy, {}, capacity)];
    const leases = [await world.acquire(), await world.acquire()];
    const other = second.acquire();
    await settle();
    for (const lease of leases) lease.release('done');
    await other;
    expect([world.alive.size, second.alive.size]).toEqual([1, 1]);
  });

  it('a group that lacks instances on the machine ends an idle instance of another group, but none of its own', async () => {
    const world = new World({ concurrency: 1, minInstances: 2, scaleDownMs: 60_000 }, { maxInstances: 2 });
    (await world.acquire({}, { sessionContext: 'c' })).release('done');
    world.scaler.start();
    await settle();
    expect([...world.alive].map(({ key }) => key.sessionContext)).toEqual(['', '']);
    // The machine is full. Both instances are idle, and a call that no group can serve ends neither.
    void world.acquire({}, { sessionContext: 'd' });
    await settle();
    expect([...world.alive].map(({ stopped }) => stopped)).toEqual([false, false]);
    expect(world.started).toBe(3);
  });

  it.each([
    ['another group of the function', 1],
    ['another function', 2],
  ])(
    'a group that is never idle does not starve %s: the clearly longer wait gets the next capacity',
    async (_title, scalers) => {
      const capacity = new Capacity({
        maxInstances: 1,
        maxInstancesPerTenant: 1,
        machine: machineOf(4000, 4096),
      });
      const policy = { concurrency: 1, maxInstances: 1, scaleDownMs: 60_000 };
      const clock = new FakeClock();
      const world = new World(policy, {}, capacity, HOME, clock);
      const second = scalers === 1 ? world : new World(policy, {}, capacity, HOME, clock);
      let lease = await world.acquire();
      let next = world.acquire();
      let isServed = false;
      const other = second.acquire({}, { memoryMb: 1024 }).then(taken => {
        isServed = true;
        taken.release('done');
      });
      let rounds = 0;
      // One call always runs and one call always waits.
      while (!isServed && rounds++ < 30) {
        await clock.advance(100);
        lease.release('done');
        await settle();
        if (isServed) break;
        lease = await next;
        next = world.acquire();
      }
      await other;
      expect(rounds).toBeGreaterThan(9);
      expect(rounds).toBeLessThan(15);
      (await next).release('done');
    },
  );

  it('no instance ends for a call that has stopped waiting', async () => {
    const capacity = new Capacity({
      maxInstances: 1,
      maxInstancesPerTenant: 1,
      machine: machineOf(4000, 4096),
    });
    const policy = { concurrency: 1, scaleDownMs: 60_000 };
    const [world, second] = [new World(policy, {}, capacity), new World(policy, {}, capacity)];
    const lease = await world.acquire();
    const late = second.acquire({ maxWaitMs: 500 });
    await second.clock.advance(501);
    await expect(late).rejects.toThrow('no instance was free');
    lease.release('done');
    await settle();
    expect(world.alive.size).toBe(1);
  });

  it('adopted instances count towards the minimum, and adopted instances above the maximum end', async () => {
    const world = new World({ minInstances: 2, maxInstances: 2 });
    const earlier = ['a', 'b', 'c'].map(id => new FakeInstance(id, HOME, () => undefined));
    for (const instance of earlier) world.scaler.adopt(HOME, instance);
    world.scaler.start();
    await settle();
    expect(world.started).toBe(0);
    expect(earlier.map(({ stopped }) => stopped)).toEqual([false, false, true]);
  });

  it('a function with custom resources keeps its minimum of instances warm', async () => {
    const home = { ...HOME, customResources: '{"gpu":1}' };
    const world = new World({ minInstances: 1, labels: new Map([['l', { min: 1, max: 1 }]]) }, {}, undefined, home);
    world.scaler.start();
    await settle();
    expect([...world.alive].map(({ key }) => key.label)).toEqual(['', 'l']);
  });

  it('VersionScaler keeps minInstances warm from the start and replaces an instance that dies', async () => {
    const world = new World({ minInstances: 2 });
    world.scaler.start();
    await settle();
    expect(world.alive.size).toBe(2);
    await world.clock.advance(20_000);
    expect(world.alive.size).toBe(2);
    [...world.alive][0]?.kill('signal SIGKILL');
    await settle();
    expect(world.alive.size).toBe(2);
  });

  it('VersionScaler ends idle instances above the minimum after scaleDownMs', async () => {
    const world = new World({ concurrency: 1, minInstances: 1 });
    world.scaler.start();
    const leases = await Promise.all([world.acquire(), world.acquire(), world.acquire()]);
    for (const lease of leases) lease.release('done');
    await world.clock.advance(999);
    expect(world.alive.size).toBe(3);
    await world.clock.advance(2);
    expect(world.alive.size).toBe(1);
  });

  it('VersionScaler with a quota starts a second instance only for a call that waited for slaQuotaMs', async () => {
    const world = new World({ concurrency: 1, slaQuotaMs: 500 });
    await world.acquire();
    const second = world.acquire();
    await world.clock.advance(499);
    expect(world.started).toBe(1);
    await world.clock.advance(2);
    expect((await second).instance.id).toBe('i2');
  });

  it('each waiting call has its own quota time although an earlier call waits for a slow start', async () => {
    const world = new World({ concurrency: 1, slaQuotaMs: 500 });
    await world.acquire();
    world.holdStarts = true;
    void world.acquire();
    await world.clock.advance(100);
    void world.acquire();
    await world.clock.advance(400);
    expect(world.starting.length).toBe(1);
    await world.clock.advance(99);
    expect(world.starting.length).toBe(1);
    await world.clock.advance(1);
    expect(world.starting.length).toBe(2);
  });

  it('a call that waits for the instance of its session delays no quota start for later calls', async () => {
    const world = new World({ concurrency: 1, slaQuotaMs: 500 });
    await world.acquire({ session: session('s') });
    void world.acquire({ session: session('s') });
    await world.clock.advance(1000);
    const plain = world.acquire();
    await world.clock.advance(499);
    expect(world.started).toBe(1);
    await world.clock.advance(1);
    expect((await plain).instance.id).toBe('i2');
    expect(world.started).toBe(2);
  });

  it('an instance of a oneshot function serves one call and ends', async () => {
    const world = new World({ concurrency: 1, oneshot: true });
    (await world.acquire()).release('done');
    await settle();
    expect(world.alive.size).toBe(0);
    expect((await world.acquire()).instance.id).toBe('i2');
  });

  it('reserved instances of a label follow the configured minimum and its updates', async () => {
    const world = new World({ labels: new Map([['gpu', { min: 2, max: 3 }]]) });
    world.scaler.start();
    await settle();
    expect(world.alive.size).toBe(2);
    world.scaler.setPolicy({ ...POLICY, labels: new Map([['gpu', { min: 1, max: 3 }]]) });
    await world.clock.advance(1001);
    expect(world.alive.size).toBe(1);
    world.scaler.setPolicy({ ...POLICY, labels: new Map() });
    await world.clock.advance(1001);
    expect(world.alive.size).toBe(0);
  });

  it.each([
    ['is lowered', new Map([['gpu', { min: 1, max: 1 }]]), 1],
    ['is deleted', new Map(), 0],
  ])(
    'instances above the maximum end immediately when a reservation %s, busy ones after their calls',
    async (_title, labels, left) => {
      const world = new World({ concurrency: 1, labels: new Map([['gpu', { min: 3, max: 3 }]]) });
      world.scaler.start();
      await settle();
      const running = await Promise.all([world.acquire({}, { label: 'gpu' }), world.acquire({}, { label: 'gpu' })]);
      world.scaler.setPolicy({ ...world.scaler.policy, labels });
      await settle();
      expect(world.alive.size).toBe(2);
      for (const lease of running) lease.release('done');
      await settle();
      expect(world.alive.size).toBe(left);
    },
  );
});

describe('VersionScaler: calls that wait for a label', () => {
  const GPU = new Map([['gpu', { min: 0, max: 1 }]]);

  /** Starts one running and one waiting call with the label, and one of each without a label. */
  async function waiting() {
    const world = new World({ concurrency: 1, maxInstances: 1, labels: GPU });
    const lease = await world.acquire({}, { label: 'gpu' });
    await world.acquire();
    return { world, lease, ofLabel: world.acquire({}, { label: 'gpu' }), other: world.acquire() };
  }

  it('a call that waits for a label fails with 150444 and the label when the reservation is deleted', async () => {
    const { world, ofLabel, other } = await waiting();
    world.scaler.setPolicy({ ...world.scaler.policy, labels: new Map() });
    await expect(ofLabel).rejects.toMatchObject({
      code: 'failed_precondition',
      number: 150444,
      message: 'the reservation of the label gpu was deleted while the call waited for it',
    });
    expect(world.scaler.waiting).toBe(1);
    void other.catch(() => undefined);
  });

  it('a call that waits for a label fails with 150429 when the maximum of the label becomes 0', async () => {
    const { world, ofLabel } = await waiting();
    world.scaler.setPolicy({ ...world.scaler.policy, labels: new Map([['gpu', { min: 0, max: 0 }]]) });
    await expect(ofLabel).rejects.toMatchObject({ number: 150429, message: expect.stringContaining('gpu') });
    expect(world.scaler.waiting).toBe(1);
  });

  it('a call that waits for a label keeps waiting when the minimum of the reservation changes', async () => {
    const { world, lease, ofLabel } = await waiting();
    world.scaler.setPolicy({ ...world.scaler.policy, labels: new Map([['gpu', { min: 1, max: 1 }]]) });
    lease.release('done');
    expect(await ofLabel).toBeDefined();
  });
});

describe('VersionScaler: refusals', () => {
  it('a call fails with 150431 when no instance was free within maxWaitMs', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    await world.acquire();
    const late = world.acquire({ maxWaitMs: 500 });
    await world.clock.advance(501);
    await expect(late).rejects.toSatisfy(error => numberOf(error) === 150431);
    expect(world.scaler.waiting).toBe(0);
  });

  it('a call fails immediately with 150429 when the queue is full at maxInstances', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, maxWaiting: 1 });
    await world.acquire();
    void world.acquire();
    await expect(world.acquire()).rejects.toSatisfy(error => numberOf(error) === 150429);
  });

  it('a call fails immediately with 150429 when the maximum of its function or label is 0', async () => {
    const world = new World({ maxInstances: 0, labels: new Map([['gone', { min: 0, max: 0 }]]) });
    for (const label of ['', 'gone']) {
      await expect(world.acquire({}, { label })).rejects.toMatchObject({
        number: 150429,
        message: expect.stringContaining('the maximum is 0'),
      });
    }
  });

  it('a call fails immediately with 150510 when the queue is full and the machine has no capacity', async () => {
    const world = new World({ concurrency: 1, maxWaiting: 1 }, { maxInstances: 1 });
    await world.acquire();
    void world.acquire();
    await expect(world.acquire()).rejects.toSatisfy(error => numberOf(error) === 150510);
  });

  it('a call fails with 150429 when the queue is full while further instances start', async () => {
    const world = new World({ concurrency: 1, maxWaiting: 1 });
    world.holdStarts = true;
    void world.acquire();
    await expect(world.acquire()).rejects.toMatchObject({
      number: 150429,
      message: expect.stringContaining('further instances are starting'),
    });
  });

  it('a call fails with 150510 when its instance would be larger than the machine', async () => {
    const world = new World();
    await expect(world.acquire({}, { memoryMb: 100_000 })).rejects.toSatisfy(error => numberOf(error) === 150510);
  });

  it('every waiting call fails with the load error of the code, and the next start waits for a pause', async () => {
    const world = new World();
    world.failStarts = new CodeFailure({ code: 4001, message: 'no module x' });
    const calls = [world.acquire(), world.acquire(), world.acquire()];
    for (const call of calls) await expect(call).rejects.toBeInstanceOf(CodeFailure);
    await expect(world.acquire()).rejects.toThrow('no module x');
    world.failStarts = undefined;
    await world.clock.advance(251);
    await world.acquire();
    expect(world.started).toBe(1);
  });

  it('groups whose starts failed are removed after a minute, together with their timers', async () => {
    const world = new World({ maxInstances: 10 });
    world.failStarts = new Error('no start');
    const calls = Array.from({ length: 5 }, (_, i) => world.acquire({}, { cpuMillis: i + 1 }));
    for (const call of calls) await expect(call).rejects.toThrow('no start');
    expect([...world.scaler.groups]).toHaveLength(5);
    await world.clock.advance(60_000);
    expect(world.scaler.isEmpty).toBe(true);
    expect(world.clock.pending).toBe(0);
  });

  it('the pause after a failed start doubles, and is 250 ms again after a long time without calls', async () => {
    const world = new World();
    world.failStarts = new Error('no start');
    const fails = async (pauseMs: number) => {
      await expect(world.acquire()).rejects.toThrow('no start');
      expect([...world.scaler.groups][0]?.backoffUntilMs).toBe(world.clock.now() + pauseMs);
    };
    for (const pauseMs of [250, 500, 1000, 2000]) {
      await fails(pauseMs);
      await world.clock.advance(10_000);
    }
    await world.clock.advance(30_000);
    await fails(250);
  });

  it('other calls wait for the next start when one call killed a new instance', async () => {
    const world = new World();
    const lease = await world.acquire();
    (lease.instance as FakeInstance).kill('instance exited: exit code 7');
    await settle();
    const other = world.acquire();
    await world.clock.advance(251);
    expect((await other).instance.id).toBe('i2');
  });

  it.each(['before', 'after'] as const)(
    'the pause after early deaths doubles when the failed call is released %s the exit notification',
    async order => {
      const world = new World();
      for (const pauseMs of [250, 500, 1000, 2000]) {
        const lease = await world.acquire();
        if (order === 'before') lease.release('failed');
        (lease.instance as FakeInstance).kill('instance exited: exit code 7');
        await settle();
        lease.release('failed');
        const [group] = world.scaler.groups;
        expect(group?.backoffUntilMs).toBe(world.clock.now() + pauseMs);
        await world.clock.advance(pauseMs);
      }
      (await world.acquire()).release('done');
      expect([...world.scaler.groups][0]?.failures).toBe(0);
    },
  );

  it('a call fails immediately with the exit reason when instances keep dying before a call succeeds', async () => {
    const world = new World();
    for (let death = 0; death < 4; death++) {
      const lease = world.acquire();
      await world.clock.advance(1001);
      ((await lease).instance as FakeInstance).kill('instance exited: exit code 7');
      await settle();
    }
    await expect(world.acquire()).rejects.toMatchObject({ number: 150427, message: 'instance exited: exit code 7' });
  });

  it('a caller that disconnects frees its slot in the queue', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, maxWaiting: 1 });
    await world.acquire();
    const leaving = new AbortController();
    const left = world.acquire({ signal: leaving.signal });
    await settle();
    leaving.abort();
    await expect(left).rejects.toThrow('went away');
    expect(world.scaler.waiting).toBe(0);
  });
});

describe('VersionScaler: draining and stopping', () => {
  it('drain serves running and waiting calls, then ends every instance', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, minInstances: 1 });
    world.scaler.start();
    const running = await world.acquire();
    const waiting = world.acquire();
    const drained = world.scaler.drain();
    running.release('done');
    (await waiting).release('done');
    await drained;
    expect(world.alive.size).toBe(0);
    expect(world.clock.pending).toBe(0);
  });

  it('endAll fails waiting calls with 150431 and starts no instance for their session', async () => {
    const world = new World({ concurrency: 1 });
    const running = await world.acquire({ session: session('s') });
    const waiting = world.acquire({ session: session('s') });
    const drained = world.scaler.drain();
    world.scaler.endAll();
    await expect(waiting).rejects.toMatchObject({ number: 150431, message: 'the service is stopping' });
    running.release('failed');
    await drained;
    expect(world.started).toBe(1);
    expect(world.clock.pending).toBe(0);
  });

  it('endAll completes the drain when only a waiting call is left', async () => {
    const world = new World({}, { maxInstances: 0 });
    const waiting = world.acquire();
    const drained = world.scaler.drain();
    world.scaler.endAll();
    await expect(waiting).rejects.toMatchObject({ number: 150431 });
    await drained;
    expect(world.clock.pending).toBe(0);
  });

  it('an instance whose handler timed out gets no more calls and is replaced', async () => {
    const world = new World({ concurrency: 2 });
    const stuck = await world.acquire();
    const beside = await world.acquire();
    stuck.release('replace');
    expect((await world.acquire()).instance.id).toBe('i2');
    expect((beside.instance as FakeInstance).stopped).toBe(false);
    beside.release('done');
    expect(beside.instance).toMatchObject({ stopped: true, wasStuck: true });
  });

  it('an instance that is scaled down is not stopped as stuck', async () => {
    const world = new World();
    const lease = await world.acquire();
    lease.release('done');
    await world.clock.advance(1001);
    expect(lease.instance).toMatchObject({ stopped: true, wasStuck: false });
  });
});

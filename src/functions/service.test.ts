import { describe, expect, it } from 'vitest';
import { FakeClock, settle } from '../../test/fakes/fake-clock.ts';
import { machineOf } from '../../test/functions/harness.ts';
import { FakeInstance, HOME, numberOf, POLICY, session, World } from '../../test/functions/world.ts';
import { Capacity } from './capacity.ts';
import { CodeFailure } from './failure.ts';

describe('service: starting', () => {
  it('starts at once for the first call', async () => {
    const world = new World();
    const lease = await world.acquire();
    expect(lease.cold).toBe(true);
    expect(world.started).toBe(1);
  });

  it('starts one instance for the parallel first calls of one session, however many', async () => {
    const world = new World({ concurrency: 10, maxInstances: 100 });
    world.holdStarts = true;
    const calls = Array.from({ length: 60 }, (_, i) => world.acquire({ session: session('s', i % 2 ? -1 : 1) }));
    await settle();
    expect(world.starting.length).toBe(1);
    for (const start of world.starting.splice(0)) start.ok();
    for (const call of calls) (await call).release('done');
    expect(world.alive.size).toBe(1);
  });

  it('starts 6 instances, not 60, for 60 parallel first calls with concurrency 10', async () => {
    const world = new World({ concurrency: 10, maxInstances: 100 });
    world.holdStarts = true;
    const calls = Array.from({ length: 60 }, () => world.acquire());
    await settle();
    expect(world.starting.length).toBe(6);
    for (const start of world.starting.splice(0)) start.ok();
    await Promise.all(calls);
    expect(world.alive.size).toBe(6);
  });

  it('gives a waiting call whichever comes first: a freed slot', async () => {
    const world = new World({ concurrency: 1 });
    const first = await world.acquire();
    world.holdStarts = true;
    const second = world.acquire();
    await settle();
    expect(world.starting.length).toBe(1);
    first.release('done');
    expect((await second).instance.id).toBe(first.instance.id);
  });

  it('never passes maxInstances over all groups without a label', async () => {
    const world = new World({ concurrency: 1, maxInstances: 2 });
    await world.acquire();
    await world.acquire({}, { memoryMb: 1024 });
    const third = world.acquire({}, { sessionContext: 'c' });
    await settle();
    expect(world.alive.size).toBe(2);
    expect(await Promise.race([third, Promise.resolve('waits')])).toBe('waits');
  });

  it('ends an idle instance of another group when the maximum is in the way', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    (await world.acquire()).release('done');
    const other = await world.acquire({}, { sessionContext: 'c' });
    expect(other.instance.id).toBe('i2');
    expect(world.alive.size).toBe(1);
  });

  it('a start that failed leaves its slot under the maximum to another group that waits', async () => {
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

  it('an instance that becomes idle ends at once when another group waits for its slot under the maximum', async () => {
    const world = new World({ concurrency: 1, maxInstances: 2, scaleDownMs: 60_000 });
    const leases = [await world.acquire(), await world.acquire()];
    const other = world.acquire({}, { sessionContext: 'c' });
    await settle();
    for (const lease of leases) lease.release('done');
    expect((await other).instance.id).toBe('i3');
    // One was in the way, the other one was not.
    expect(world.alive.size).toBe(2);
  });

  it('an instance that a session gave free ends at once when another group waits for its slot', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, scaleDownMs: 60_000 });
    (await world.acquire({ session: session('a', 1, 5000) })).release('done');
    const other = world.acquire({}, { sessionContext: 'c' });
    await world.clock.advance(5001);
    expect((await other).instance.id).toBe('i2');
  });

  it('an instance that becomes idle ends at once when another function waits for its capacity on the machine', async () => {
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

  it.each([
    ['another group of the function', 1],
    ['another function', 2],
  ])(
    'a group that is never idle does not starve %s: who waited clearly longer gets the next capacity',
    async (_title, services) => {
      const capacity = new Capacity({
        maxInstances: 1,
        maxInstancesPerTenant: 1,
        machine: machineOf(4000, 4096),
      });
      const policy = { concurrency: 1, maxInstances: 1, scaleDownMs: 60_000 };
      const clock = new FakeClock();
      const world = new World(policy, {}, capacity, HOME, clock);
      const second = services === 1 ? world : new World(policy, {}, capacity, HOME, clock);
      let lease = await world.acquire();
      let next = world.acquire();
      let isServed = false;
      const other = second.acquire({}, { memoryMb: 1024 }).then(taken => {
        isServed = true;
        taken.release('done');
      });
      let rounds = 0;
      // There is always one call that runs and one that waits.
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

  it('nobody is ended for a call that does not wait any more', async () => {
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

  it('instances that were taken over count towards the minimum, and those above the maximum end', async () => {
    const world = new World({ minInstances: 2, maxInstances: 2 });
    const earlier = ['a', 'b', 'c'].map(id => new FakeInstance(id, HOME, () => undefined));
    for (const instance of earlier) world.service.adopt(HOME, instance);
    world.service.start();
    await settle();
    expect(world.started).toBe(0);
    expect(earlier.map(({ stopped }) => stopped)).toEqual([false, false, true]);
  });

  it('a function with custom resources of its own keeps its minimum warm too', async () => {
    const home = { ...HOME, customResources: '{"gpu":1}' };
    const world = new World({ minInstances: 1, labels: new Map([['l', { min: 1, max: 1 }]]) }, {}, undefined, home);
    world.service.start();
    await settle();
    expect([...world.alive].map(({ key }) => key.label)).toEqual(['', 'l']);
  });

  it('keeps minInstances warm from the start and replaces one that dies', async () => {
    const world = new World({ minInstances: 2 });
    world.service.start();
    await settle();
    expect(world.alive.size).toBe(2);
    await world.clock.advance(20_000);
    expect(world.alive.size).toBe(2);
    [...world.alive][0]?.kill('signal SIGKILL');
    await settle();
    expect(world.alive.size).toBe(2);
  });

  it('ends idle instances above the minimum after scaleDownMs', async () => {
    const world = new World({ concurrency: 1, minInstances: 1 });
    world.service.start();
    const leases = await Promise.all([world.acquire(), world.acquire(), world.acquire()]);
    for (const lease of leases) lease.release('done');
    await world.clock.advance(999);
    expect(world.alive.size).toBe(3);
    await world.clock.advance(2);
    expect(world.alive.size).toBe(1);
  });

  it('with a quota, starts a second instance only for calls that have waited that long', async () => {
    const world = new World({ concurrency: 1, slaQuotaMs: 500 });
    await world.acquire();
    const second = world.acquire();
    await world.clock.advance(499);
    expect(world.started).toBe(1);
    await world.clock.advance(2);
    expect((await second).instance.id).toBe('i2');
  });

  it('with a quota, each call that waits has its own time, although an earlier one waits for a slow start', async () => {
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

  it('with a quota, a call that waits for its session’s instance holds up no start for those behind it', async () => {
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

  it('oneshot: an instance serves one call and ends', async () => {
    const world = new World({ concurrency: 1, oneshot: true });
    (await world.acquire()).release('done');
    await settle();
    expect(world.alive.size).toBe(0);
    expect((await world.acquire()).instance.id).toBe('i2');
  });

  it('reserved instances of a label run as configured and follow updates', async () => {
    const world = new World({ labels: new Map([['gpu', { min: 2, max: 3 }]]) });
    world.service.start();
    await settle();
    expect(world.alive.size).toBe(2);
    world.service.setPolicy({ ...POLICY, labels: new Map([['gpu', { min: 1, max: 3 }]]) });
    await world.clock.advance(1001);
    expect(world.alive.size).toBe(1);
    world.service.setPolicy({ ...POLICY, labels: new Map() });
    await world.clock.advance(1001);
    expect(world.alive.size).toBe(0);
  });
});

describe('service: refusals', () => {
  it('150431 when it waited too long', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    await world.acquire();
    const late = world.acquire({ maxWaitMs: 500 });
    await world.clock.advance(501);
    await expect(late).rejects.toSatisfy(error => numberOf(error) === 150431);
    expect(world.service.waiting).toBe(0);
  });

  it('150429 at once when the queue is full at maxInstances', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, maxWaiting: 1 });
    await world.acquire();
    void world.acquire();
    await expect(world.acquire()).rejects.toSatisfy(error => numberOf(error) === 150429);
  });

  it('150429 at once where the maximum is 0, of a function or of a label', async () => {
    const world = new World({ maxInstances: 0, labels: new Map([['gone', { min: 0, max: 0 }]]) });
    for (const label of ['', 'gone']) {
      await expect(world.acquire({}, { label })).rejects.toMatchObject({
        number: 150429,
        message: expect.stringContaining('the maximum is 0'),
      });
    }
  });

  it('150510 at once when the queue is full and the machine has no capacity', async () => {
    const world = new World({ concurrency: 1, maxWaiting: 1 }, { maxInstances: 1 });
    await world.acquire();
    void world.acquire();
    await expect(world.acquire()).rejects.toSatisfy(error => numberOf(error) === 150510);
  });

  it('150429 when the queue is full while instances start that there is capacity for', async () => {
    const world = new World({ concurrency: 1, maxWaiting: 1 });
    world.holdStarts = true;
    void world.acquire();
    await expect(world.acquire()).rejects.toMatchObject({
      number: 150429,
      message: expect.stringContaining('further instances are starting'),
    });
  });

  it('150510 for an instance that is larger than the machine', async () => {
    const world = new World();
    await expect(world.acquire({}, { memoryMb: 100_000 })).rejects.toSatisfy(error => numberOf(error) === 150510);
  });

  it('tells every waiting caller why the code could not be loaded, and backs off instead of spinning', async () => {
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

  it('starts that fail leave nothing behind for ever, whatever their callers asked for', async () => {
    const world = new World({ maxInstances: 10 });
    world.failStarts = new Error('no start');
    const calls = Array.from({ length: 5 }, (_, i) => world.acquire({}, { cpuMillis: i + 1 }));
    for (const call of calls) await expect(call).rejects.toThrow('no start');
    expect([...world.service.groups]).toHaveLength(5);
    await world.clock.advance(60_000);
    expect(world.service.isEmpty).toBe(true);
    expect(world.clock.pending).toBe(0);
  });

  it('who calls again after the pause finds it doubled, and the first one again when nobody called for long', async () => {
    const world = new World();
    world.failStarts = new Error('no start');
    const fails = async (pauseMs: number) => {
      await expect(world.acquire()).rejects.toThrow('no start');
      expect([...world.service.groups][0]?.backoffUntilMs).toBe(world.clock.now() + pauseMs);
    };
    for (const pauseMs of [250, 500, 1000, 2000]) {
      await fails(pauseMs);
      await world.clock.advance(10_000);
    }
    await world.clock.advance(30_000);
    await fails(250);
  });

  it('a call that killed a new instance fails no call of others: they wait for the next start', async () => {
    const world = new World();
    const lease = await world.acquire();
    (lease.instance as FakeInstance).kill('instance exited: exit code 7');
    await settle();
    const other = world.acquire();
    await world.clock.advance(251);
    expect((await other).instance.id).toBe('i2');
  });

  it.each(['before', 'after'] as const)(
    'the pause after early deaths doubles, the failed call given back %s the news',
    async order => {
      const world = new World();
      for (const pauseMs of [250, 500, 1000, 2000]) {
        const lease = await world.acquire();
        if (order === 'before') lease.release('failed');
        (lease.instance as FakeInstance).kill('instance exited: exit code 7');
        await settle();
        lease.release('failed');
        const [group] = world.service.groups;
        expect(group?.backoffUntilMs).toBe(world.clock.now() + pauseMs);
        await world.clock.advance(pauseMs);
      }
      (await world.acquire()).release('done');
      expect([...world.service.groups][0]?.failures).toBe(0);
    },
  );

  it('when instances keep dying before they end a call well, callers learn at once why, as it is', async () => {
    const world = new World();
    for (let death = 0; death < 4; death++) {
      const lease = world.acquire();
      await world.clock.advance(1001);
      ((await lease).instance as FakeInstance).kill('instance exited: exit code 7');
      await settle();
    }
    await expect(world.acquire()).rejects.toMatchObject({ number: 150427, message: 'instance exited: exit code 7' });
  });

  it('a caller that leaves frees its slot in the queue', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, maxWaiting: 1 });
    await world.acquire();
    const leaving = new AbortController();
    const left = world.acquire({ signal: leaving.signal });
    await settle();
    leaving.abort();
    await expect(left).rejects.toThrow('went away');
    expect(world.service.waiting).toBe(0);
  });
});

describe('service: the end', () => {
  it('drains: running and waiting calls are served, then every instance ends', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, minInstances: 1 });
    world.service.start();
    const running = await world.acquire();
    const waiting = world.acquire();
    const drained = world.service.drain();
    running.release('done');
    (await waiting).release('done');
    await drained;
    expect(world.alive.size).toBe(0);
    expect(world.clock.pending).toBe(0);
  });

  it('everything ends at once: who waits is told so, and nothing starts for a session whose instance goes', async () => {
    const world = new World({ concurrency: 1 });
    const running = await world.acquire({ session: session('s') });
    const waiting = world.acquire({ session: session('s') });
    const drained = world.service.drain();
    world.service.endAll();
    await expect(waiting).rejects.toMatchObject({ number: 150431, message: 'the service is stopping' });
    running.release('failed');
    await drained;
    expect(world.started).toBe(1);
    expect(world.clock.pending).toBe(0);
  });

  it('everything ends at once, also where nothing but a call that waits is left', async () => {
    const world = new World({}, { maxInstances: 0 });
    const waiting = world.acquire();
    const drained = world.service.drain();
    world.service.endAll();
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

  it('an instance that is not needed any more is not stuck', async () => {
    const world = new World();
    const lease = await world.acquire();
    lease.release('done');
    await world.clock.advance(1001);
    expect(lease.instance).toMatchObject({ stopped: true, wasStuck: false });
  });
});

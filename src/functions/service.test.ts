import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FakeClock, settle } from '../../test/fakes/fake-clock.ts';
import { machineOf } from '../../test/functions/harness.ts';
import { ServiceError } from '../core/error.ts';
import { Capacity } from './capacity.ts';
import { CodeFailure } from './failure.ts';
import type { Lease } from './group.ts';
import type { ServiceInstance } from './member.ts';
import type { GroupKey, ServicePolicy, SessionRequest } from './policy.ts';
import { type AcquireOptions, Service } from './service.ts';

const HOME: GroupKey = { cpuMillis: 1000, memoryMb: 512, customResources: '', label: '', sessionContext: '' };
const POLICY: ServicePolicy = {
  concurrency: 2,
  minInstances: 0,
  maxInstances: 4,
  scaleDownMs: 1000,
  slaQuotaMs: null,
  maxWaiting: 100,
  oneshot: false,
  labels: new Map(),
};

class FakeInstance implements ServiceInstance {
  readonly id: string;
  readonly key: GroupKey;
  running = 0;
  stopped = false;
  wasStuck = false;
  #end!: (reason: string) => void;
  readonly ended = new Promise<string>(resolve => {
    this.#end = resolve;
  });
  readonly #onGone: () => void;
  constructor(id: string, key: GroupKey, onGone: () => void) {
    this.id = id;
    this.key = key;
    this.#onGone = onGone;
  }
  async stop(isStuck = false) {
    this.stopped = true;
    this.wasStuck = isStuck;
    this.kill('stopped');
  }
  kill(reason: string) {
    this.#onGone();
    this.#end(reason);
  }
}

class World {
  readonly clock: FakeClock;
  readonly alive = new Set<FakeInstance>();
  readonly starting: { key: GroupKey; ok(): void; fail(error: Error): void }[] = [];
  started = 0;
  /** Starts end at once unless a test holds them. */
  holdStarts = false;
  failStarts: Error | undefined;
  readonly service: Service;

  constructor(
    policy: Partial<ServicePolicy> = {},
    machine: Partial<ConstructorParameters<typeof Capacity>[0]> = {},
    capacity = new Capacity({
      maxInstances: 1000,
      maxInstancesPerTenant: 1000,
      machine: machineOf(4000, 4096),
      ...machine,
    }),
    home = HOME,
    clock = new FakeClock(),
  ) {
    this.clock = clock;
    this.service = new Service({ ...POLICY, ...policy }, home, {
      tenant: 't',
      clock: this.clock,
      capacity,
      start: key => this.#start(key),
    });
  }

  #start(key: GroupKey): Promise<ServiceInstance> {
    return new Promise((resolve, reject) => {
      const start = {
        key,
        ok: () => {
          const instance = new FakeInstance(`i${++this.started}`, key, () => this.alive.delete(instance));
          this.alive.add(instance);
          resolve(instance);
        },
        fail: reject,
      };
      if (this.holdStarts) this.starting.push(start);
      else if (this.failStarts) start.fail(this.failStarts);
      else start.ok();
    });
  }

  acquire(options: Partial<AcquireOptions> = {}, key: Partial<GroupKey> = {}): Promise<Lease> {
    const lease = this.service.acquire({ ...HOME, ...key }, { maxWaitMs: 30_000, ...options });
    lease.catch(() => undefined);
    return lease;
  }
}

const session = (id: string, concurrency = 1, ttlMs = 0): SessionRequest => ({ id, concurrency, ttlMs });
const numberOf = (error: unknown) => (error instanceof ServiceError ? error.number : undefined);

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

  it('gives a waiting call whichever comes first: a freed place', async () => {
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

  it('an instance that becomes idle ends at once when another group waits for its place under the maximum', async () => {
    const world = new World({ concurrency: 1, maxInstances: 2, scaleDownMs: 60_000 });
    const leases = [await world.acquire(), await world.acquire()];
    const other = world.acquire({}, { sessionContext: 'c' });
    await settle();
    for (const lease of leases) lease.release('done');
    expect((await other).instance.id).toBe('i3');
    // One was in the way, the other one was not.
    expect(world.alive.size).toBe(2);
  });

  it('an instance that a session gave free ends at once when another group waits for its place', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1, scaleDownMs: 60_000 });
    (await world.acquire({ session: session('a', 1, 5000) })).release('done');
    const other = world.acquire({}, { sessionContext: 'c' });
    await world.clock.advance(5001);
    expect((await other).instance.id).toBe('i2');
  });

  it('an instance that becomes idle ends at once when another function waits for its room on the machine', async () => {
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
    'a group that is never idle does not starve %s: who waited clearly longer gets the next room',
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

  it('what was taken over counts towards the minimum, and what the maximum leaves no room for ends', async () => {
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

  it('150429 at once when the waiting room is full at maxInstances', async () => {
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

  it('150510 at once when the room is full and the machine has no room', async () => {
    const world = new World({ concurrency: 1, maxWaiting: 1 }, { maxInstances: 1 });
    await world.acquire();
    void world.acquire();
    await expect(world.acquire()).rejects.toSatisfy(error => numberOf(error) === 150510);
  });

  it('150429 when the room is full while instances start that there is room for', async () => {
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

  it('a call that killed a new instance fails no call of others: they wait for the next start', async () => {
    const world = new World();
    const lease = await world.acquire();
    (lease.instance as FakeInstance).kill('instance exited: exit code 7');
    await settle();
    const other = world.acquire();
    await world.clock.advance(251);
    expect((await other).instance.id).toBe('i2');
  });

  it('when instances keep dying before they end a call well, callers are told at once why, as it is', async () => {
    const world = new World();
    for (let death = 0; death < 4; death++) {
      const lease = world.acquire();
      await world.clock.advance(1001);
      ((await lease).instance as FakeInstance).kill('instance exited: exit code 7');
      await settle();
    }
    await expect(world.acquire()).rejects.toMatchObject({ number: 150427, message: 'instance exited: exit code 7' });
  });

  it('a caller that leaves frees its place in the room', async () => {
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

describe('service: sessions', () => {
  it('all calls of one session reach one instance', async () => {
    const world = new World({ concurrency: 1, maxInstances: 4 });
    const a1 = await world.acquire({ session: session('a', 1, 60_000) });
    const b = await world.acquire({ session: session('b', 1, 60_000) });
    const a2 = world.acquire({ session: session('a', 1, 60_000) });
    a1.release('done');
    expect((await a2).instance.id).toBe(a1.instance.id);
    expect(b.instance.id).not.toBe(a1.instance.id);
  });

  it('after its instance died a session gets one new instance', async () => {
    const world = new World({ concurrency: 1 });
    const first = await world.acquire({ session: session('a', 1, 60_000) });
    first.release('done');
    (first.instance as FakeInstance).kill('signal SIGKILL');
    await settle();
    const again = await world.acquire({ session: session('a', 1, 60_000) });
    expect(again.instance.id).toBe('i2');
  });

  it('keeps its places for it until ttl after its last call, and is not scaled down as long', async () => {
    const world = new World({ concurrency: 2, maxInstances: 1, scaleDownMs: 100 });
    (await world.acquire({ session: session('a', 2, 5000) })).release('done');
    const other = world.acquire();
    await world.clock.advance(4999);
    expect(world.alive.size).toBe(1);
    expect(await Promise.race([other, Promise.resolve('waits')])).toBe('waits');
    await world.clock.advance(2);
    expect((await other).instance.id).toBe('i1');
  });

  it('concurrency −1 takes the whole instance', async () => {
    const world = new World({ concurrency: 3, maxInstances: 2 });
    const whole = await world.acquire({ session: session('a', -1, 1000) });
    const other = await world.acquire();
    expect(other.instance.id).not.toBe(whole.instance.id);
  });

  it('a request for a whole instance is not overtaken for ever by small ones', async () => {
    const world = new World({ concurrency: 2, maxInstances: 1 });
    const small = [await world.acquire(), await world.acquire()];
    const whole = world.acquire({ session: session('a', -1, 0) });
    const later = world.acquire();
    small[0]?.release('done');
    await settle();
    expect(await Promise.race([later, Promise.resolve('waits')])).toBe('waits');
    small[1]?.release('done');
    (await whole).release('done');
    await later;
  });

  it('a session that went on elsewhere stays there when its old instance ends, and its places are given back in their time', async () => {
    const world = new World({ concurrency: 2, maxInstances: 2, scaleDownMs: 1000 });
    const [other, old] = [await world.acquire(), await world.acquire({ session: session('s', 1, 500) })];
    const waiting = world.acquire({ session: session('s', 1, 500) });
    // The instance takes no new calls, so what waits for the session goes to a new one.
    other.release('replace');
    const next = await waiting;
    expect(next.instance).not.toBe(old.instance);
    old.release('done');
    await world.clock.advance(1);
    next.release('done');
    await world.clock.advance(2000);
    expect(world.alive.size).toBe(0);
  });

  it('ending a session frees its places at once', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    (await world.acquire({ session: session('a', 1, 60_000) })).release('done');
    const other = world.acquire();
    await settle();
    expect(world.service.endSession('a')).toBe(true);
    await other;
    expect(world.service.endSession('a')).toBe(false);
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

describe('service: sessions beside plain calls', () => {
  it('an instance that becomes idle ends after its time although the timer of a long session is armed', async () => {
    const world = new World({ concurrency: 1, scaleDownMs: 1000 });
    const [kept, plain] = [await world.acquire({ session: session('s', 1, 3_600_000) }), await world.acquire()];
    kept.release('done');
    plain.release('done');
    await world.clock.advance(1001);
    expect([...world.alive]).toEqual([kept.instance]);
  });
});

describe('service: model', () => {
  const event = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('call' as const),
        sess: fc.option(fc.constantFrom('a', 'b', 'c')),
        ctx: fc.constantFrom('', 'x'),
        label: fc.constantFrom('', '', 'l'),
        size: fc.constantFrom(1, 2, -1),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant('finish' as const), which: fc.nat(), replace: fc.boolean() }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('crash' as const), which: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('started' as const), which: fc.nat(), ok: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('time' as const), ms: fc.integer({ min: 1, max: 3000 }) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('labels' as const), min: fc.nat(2) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('endSession' as const), sess: fc.constantFrom('a', 'b') }) },
  );

  it('holds its invariants under random calls, finishes, crashes, limits and time', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(event, { maxLength: 80 }),
        fc.record({
          concurrency: fc.integer({ min: 1, max: 3 }),
          maxInstances: fc.integer({ min: 1, max: 4 }),
          minInstances: fc.integer({ min: 0, max: 1 }),
          slaQuotaMs: fc.option(fc.constant(500)),
          oneshot: fc.boolean(),
        }),
        async (events, shape) => {
          const concurrency = shape.oneshot ? 1 : shape.concurrency;
          const world = new World({ ...shape, concurrency, labels: new Map([['l', { min: 0, max: 2 }]]) });
          world.holdStarts = true;
          world.service.start();
          const running: { lease: Lease; instance: FakeInstance }[] = [];
          let asked = 0;
          let answered = 0;
          const sticky = new Map<string, FakeInstance>();
          const check = () => {
            for (const instance of world.alive) expect(instance.running).toBeLessThanOrEqual(concurrency);
            const of = (label: string) =>
              [...world.alive].filter(i => i.key.label === label).length +
              world.starting.filter(s => s.key.label === label).length;
            expect(of('')).toBeLessThanOrEqual(shape.maxInstances);
            expect(of('l')).toBeLessThanOrEqual(2);
            for (const group of world.service.groups) {
              const nowMs = world.clock.now();
              // A session that has just ended may leave one that rested long: its end is due in this moment.
              const isDue = group.cancelTimer !== undefined && group.timerAtMs >= nowMs && group.timerAtMs <= nowMs + 1;
              if (group.waiting > 0 || isDue) continue;
              const restedTooLong = group.members.filter(
                ({ state, inFlight, reservedPlaces, idleSinceMs }) =>
                  state === 'ready' && inFlight + reservedPlaces === 0 && nowMs > idleSinceMs + POLICY.scaleDownMs,
              );
              const { labels, minInstances } = world.service.policy;
              const { label, sessionContext } = group.key;
              const ofNone = sessionContext === '' ? minInstances : 0;
              expect(restedTooLong.length).toBeLessThanOrEqual(labels.get(label)?.min ?? ofNone);
            }
          };
          const call = (options: Partial<AcquireOptions>, key: Partial<GroupKey>) => {
            asked += 1;
            world.acquire(options, key).then(
              lease => {
                answered += 1;
                const instance = lease.instance as FakeInstance;
                instance.running += 1;
                const id = options.session && `${options.session.id}/${key.label}/${key.sessionContext}`;
                const bound = id && sticky.get(id);
                const takesCalls = [...world.service.groups].some(({ members }) =>
                  members.some(member => member.instance === bound && member.state === 'ready'),
                );
                if (bound && takesCalls && !bound.stopped && !draining.has(bound)) expect(instance).toBe(bound);
                if (id) sticky.set(id, instance);
                running.push({ lease, instance });
              },
              () => {
                answered += 1;
              },
            );
          };
          const draining = new Set<FakeInstance>();
          const finish = (index: number, outcome: 'done' | 'replace') => {
            const [done] = running.splice(index, 1);
            if (!done) return;
            done.instance.running -= 1;
            if (outcome === 'replace' || shape.oneshot) draining.add(done.instance);
            done.lease.release(outcome);
          };
          for (const e of events) {
            if (e.kind === 'call') {
              const size = e.size === -1 ? -1 : Math.min(e.size, concurrency);
              call(e.sess ? { session: session(e.sess, size, 20_000) } : {}, { sessionContext: e.ctx, label: e.label });
            } else if (e.kind === 'finish' && running.length > 0)
              finish(e.which % running.length, e.replace ? 'replace' : 'done');
            else if (e.kind === 'crash' && world.alive.size > 0)
              [...world.alive][e.which % world.alive.size]?.kill('crashed');
            else if (e.kind === 'started' && world.starting.length > 0) {
              const [start] = world.starting.splice(e.which % world.starting.length, 1);
              if (e.ok) start?.ok();
              else start?.fail(new Error('no start'));
            } else if (e.kind === 'time') await world.clock.advance(e.ms);
            else if (e.kind === 'labels')
              world.service.setPolicy({ ...world.service.policy, labels: new Map([['l', { min: e.min, max: 2 }]]) });
            else if (e.kind === 'endSession') {
              world.service.endSession(e.sess);
              sticky.clear();
            }
            await settle();
            check();
          }
          // Quiet again: everything starts and finishes, time passes, and only the minimum is left.
          world.service.setPolicy({ ...world.service.policy, labels: new Map([['l', { min: 0, max: 2 }]]) });
          for (let round = 0; round < 200; round++) {
            for (const start of world.starting.splice(0)) start.ok();
            while (running.length > 0) finish(0, 'done');
            await world.clock.advance(1000);
            check();
          }
          expect(answered).toBe(asked);
          expect(world.service.waiting).toBe(0);
          expect(world.alive.size).toBe(shape.minInstances);
        },
      ),
      { numRuns: 200 },
    );
  });
});

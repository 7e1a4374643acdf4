import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { type FakeInstance, session, World } from '../../test/functions/world.ts';

describe('VersionScaler: sessions', () => {
  it('all calls of one session reach one instance', async () => {
    const world = new World({ concurrency: 1, maxInstances: 4 });
    const a1 = await world.acquire({ session: session('a', 1, 60_000) });
    const b = await world.acquire({ session: session('b', 1, 60_000) });
    const a2 = world.acquire({ session: session('a', 1, 60_000) });
    a1.release('done');
    expect((await a2).instance.id).toBe(a1.instance.id);
    expect(b.instance.id).not.toBe(a1.instance.id);
  });

  it('a session gets one new instance after its instance died', async () => {
    const world = new World({ concurrency: 1 });
    const first = await world.acquire({ session: session('a', 1, 60_000) });
    first.release('done');
    (first.instance as FakeInstance).kill('signal SIGKILL');
    await settle();
    const again = await world.acquire({ session: session('a', 1, 60_000) });
    expect(again.instance.id).toBe('i2');
  });

  it('an instance keeps the slots of a session, and is not scaled down, until the session ttl has passed', async () => {
    const world = new World({ concurrency: 2, maxInstances: 1, scaleDownMs: 100 });
    (await world.acquire({ session: session('a', 2, 5000) })).release('done');
    const other = world.acquire();
    await world.clock.advance(4999);
    expect(world.alive.size).toBe(1);
    expect(await Promise.race([other, Promise.resolve('waits')])).toBe('waits');
    await world.clock.advance(2);
    expect((await other).instance.id).toBe('i1');
  });

  it('a session with concurrency −1 takes the whole instance', async () => {
    const world = new World({ concurrency: 3, maxInstances: 2 });
    const whole = await world.acquire({ session: session('a', -1, 1000) });
    const other = await world.acquire();
    expect(other.instance.id).not.toBe(whole.instance.id);
  });

  it('a request for a whole instance is served before later small requests', async () => {
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

  it('a session that moved keeps its new instance when the old one ends, and frees its slots after its ttl', async () => {
    const world = new World({ concurrency: 2, maxInstances: 2, scaleDownMs: 1000 });
    const [other, old] = [await world.acquire(), await world.acquire({ session: session('s', 1, 500) })];
    const waiting = world.acquire({ session: session('s', 1, 500) });
    // The instance takes no new calls, so the waiting call of the session moves to a new instance.
    other.release('replace');
    const next = await waiting;
    expect(next.instance).not.toBe(old.instance);
    old.release('done');
    await world.clock.advance(1);
    next.release('done');
    await world.clock.advance(2000);
    expect(world.alive.size).toBe(0);
  });

  it('a call of a session whose instance is stopping gets a new instance and delays no other call', async () => {
    const world = new World({ concurrency: 1, maxInstances: 8 });
    world.holdStops = true;
    const first = await world.acquire({ session: session('s') });
    first.release('done');
    await world.clock.advance(1001);
    expect(first.instance).toMatchObject({ stopped: true });
    const again = world.acquire({ session: session('s') });
    const plain = world.acquire();
    expect((await again).instance.id).toBe('i2');
    expect((await plain).instance.id).toBe('i3');
    expect(world.started).toBe(3);
  });

  it('a session that was rebound while its instance stopped stays rebound when that instance has ended', async () => {
    const world = new World({ concurrency: 1 });
    world.holdStops = true;
    const old = await world.acquire({ session: session('s', 1, 500) });
    old.release('done');
    await world.clock.advance(2000);
    const next = await world.acquire({ session: session('s', 1, 60_000) });
    (old.instance as FakeInstance).kill('stopped');
    await settle();
    next.release('done');
    expect((await world.acquire({ session: session('s', 1, 60_000) })).instance).toBe(next.instance);
    expect(world.scaler.endSession('s')).toBe(true);
  });

  it('ending a session frees its slots immediately', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    (await world.acquire({ session: session('a', 1, 60_000) })).release('done');
    const other = world.acquire();
    await settle();
    expect(world.scaler.endSession('a')).toBe(true);
    await other;
    expect(world.scaler.endSession('a')).toBe(false);
  });
});

describe('VersionScaler: idle instances while calls of a session wait', () => {
  /** Starts two instances. One call of the session runs on the first, and another waits for it. */
  async function busySession() {
    const world = new World({ concurrency: 1, scaleDownMs: 1000 });
    const first = await world.acquire({ session: session('s') });
    const other = await world.acquire();
    const second = world.acquire({ session: session('s') });
    other.release('done');
    return { world, first, second };
  }

  it('an idle instance ends after scaleDownMs while a call waits for the instance of its session', async () => {
    const { world } = await busySession();
    await world.clock.advance(999);
    expect(world.alive.size).toBe(2);
    await world.clock.advance(1);
    expect(world.alive.size).toBe(1);
    expect(world.scaler.waiting).toBe(1);
  });

  it('an idle instance ends after scaleDownMs when the last waiting call of a session has its slot', async () => {
    const { world, first, second } = await busySession();
    await world.clock.advance(500);
    first.release('done');
    await second;
    await world.clock.advance(500);
    expect(world.alive.size).toBe(1);
    expect(world.scaler.waiting).toBe(0);
  });
});

describe('VersionScaler: sessions beside plain calls', () => {
  it('an idle instance ends after scaleDownMs although the timer of a longer session is armed', async () => {
    const world = new World({ concurrency: 1, scaleDownMs: 1000 });
    const [kept, plain] = [await world.acquire({ session: session('s', 1, 3_600_000) }), await world.acquire()];
    kept.release('done');
    plain.release('done');
    await world.clock.advance(1001);
    expect([...world.alive]).toEqual([kept.instance]);
  });
});

import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { type FakeInstance, session, World } from '../../test/functions/world.ts';

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

  it('keeps its slots for it until ttl after its last call, and is not scaled down as long', async () => {
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

  it('a session that went on elsewhere stays there when its old instance ends, and its slots are given back in their time', async () => {
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

  it('a call of a session whose idle instance stops goes to another one, and holds up nobody', async () => {
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

  it('a session that was bound anew while its instance stopped stays there when that is gone', async () => {
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
    expect(world.service.endSession('s')).toBe(true);
  });

  it('ending a session frees its slots at once', async () => {
    const world = new World({ concurrency: 1, maxInstances: 1 });
    (await world.acquire({ session: session('a', 1, 60_000) })).release('done');
    const other = world.acquire();
    await settle();
    expect(world.service.endSession('a')).toBe(true);
    await other;
    expect(world.service.endSession('a')).toBe(false);
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

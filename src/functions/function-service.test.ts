import { describe, expect, it, vi } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { FakeInstance, FUNCTION_URN, ServiceHarness, servedFunction, URN } from '../../test/functions/harness.ts';
import { deadlineExceeded, unavailable } from '../core/error.ts';
import { OpenCallBytes } from '../instances/open-call-bytes.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import { CodeFailure } from './failure.ts';

/** A call that runs: its promise, and the instance that it runs on. */
async function running(harness: ServiceHarness, more: Parameters<ServiceHarness['invoke']>[0] = {}) {
  const result = harness.invoke(more);
  await settle();
  const instance = harness.launcher.launched.findLast(({ calls }) => calls.length > 0);
  if (!instance) throw new Error('the call found no instance');
  return { result, instance };
}

async function call(harness: ServiceHarness, more: Parameters<ServiceHarness['invoke']>[0] = {}) {
  const { result, instance } = await running(harness, more);
  instance.calls.at(-1)?.finish();
  return await result;
}

describe('versions in memory', () => {
  it('a warm call asks no registry, whatever spelling it uses', async () => {
    const harness = new ServiceHarness();
    await call(harness);
    await call(harness);
    expect(harness.catalog.finds).toBe(1);
  });

  it('calls that come while a version is read share the read', async () => {
    const harness = new ServiceHarness();
    const calls = [harness.invoke(), harness.invoke(), harness.invoke()];
    await settle();
    for (const { calls: open } of harness.launcher.launched) open[0]?.finish();
    await Promise.all(calls);
    expect(harness.catalog.finds).toBe(1);
  });

  it('the first call after a change is served by what is true after it', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    const old = await call(harness);
    harness.catalog.put(servedFunction({ revisionId: 'r2' }));
    const { result, instance } = await running(harness);
    expect(instance.revisionId).toBe('r2');
    instance.calls[0]?.finish();
    expect((await result).instanceId).not.toBe(old.instanceId);
    // The old one had nothing to do any more.
    expect(harness.launcher.launched[0]?.isStopped).toBe(true);
  });

  it('a change while a version is read does not leave the old one behind', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    let open!: () => void;
    harness.catalog.gate = new Promise(resolve => {
      open = resolve;
    });
    const result = harness.invoke();
    await settle();
    harness.catalog.put(servedFunction({ revisionId: 'r2' }));
    open();
    await settle();
    const [instance] = harness.launcher.launched;
    expect(instance?.revisionId).toBe('r2');
    instance?.calls[0]?.finish();
    await result;
  });

  it('an update while calls run loses none: the old revision drains', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    const { result, instance } = await running(harness);
    harness.catalog.put(servedFunction({ revisionId: 'r2' }));
    await settle();
    expect(instance.isStopped).toBe(false);
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
    await settle();
    expect(instance.isStopped).toBe(true);
  });

  it('a delete while calls run loses none; later calls find no function', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    const { result, instance } = await running(harness);
    harness.catalog.remove(URN);
    await expect(harness.invoke()).rejects.toMatchObject({ code: 'not_found', number: 150424 });
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
    await settle();
    expect(instance.isStopped).toBe(true);
    expect(harness.service.instances(null)).toEqual([]);
  });

  it('an old revision is not kept by a session that may come again', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    await call(harness, { sent: { 'x-instance-session': '{"sessionID":"s","sessionTTL":3600}' } });
    harness.catalog.put(servedFunction({ revisionId: 'r2' }));
    await settle();
    expect(harness.launcher.launched[0]?.isStopped).toBe(true);
  });

  it('the minimum is started at the start and after a change, without a call', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { minInstances: 2 }));
    await harness.service.start();
    await settle();
    expect(harness.launcher.live).toHaveLength(2);
    harness.catalog.put(servedFunction({ revisionId: 'r2' }, { minInstances: 1 }));
    await settle();
    expect(harness.launcher.live.map(({ revisionId }) => revisionId)).toEqual(['r2']);
  });

  it('unused versions are forgotten when there are too many, used ones are not', async () => {
    const harness = new ServiceHarness({ maxRemembered: 2 });
    const urns = ['v1', 'v2', 'v3', 'v4'].map(version => `${FUNCTION_URN}:${version}`);
    for (const urn of urns) harness.catalog.functions.set(urn, servedFunction({ urn }));
    await call(harness);
    for (const urn of urns) await harness.service.check(urn, null);
    expect(harness.catalog.finds).toBe(5);
    await call(harness);
    await harness.service.check(urns.at(-1) ?? '', null);
    expect(harness.catalog.finds).toBe(5);
    await harness.service.check(urns[0] ?? '', null);
    expect(harness.catalog.finds).toBe(6);
  });

  it('instances of an earlier server are taken over when their revision still counts, and ended otherwise', async () => {
    const harness = new ServiceHarness();
    const key = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };
    const good = new FakeInstance('good', servedFunction(), key);
    const old = new FakeInstance('old', servedFunction({ revisionId: 'r0' }), key);
    const orphan = new FakeInstance('orphan', servedFunction({ urn: `${FUNCTION_URN}:gone` }), key);
    harness.launcher.adoptable.push(good, old, orphan);
    await harness.service.start();
    await settle();
    expect([good.isStopped, old.isStopped, orphan.isStopped]).toEqual([false, true, true]);
    const result = harness.invoke();
    await settle();
    good.calls[0]?.finish();
    expect((await result).instanceId).toBe('good');
  });
});

describe('after a restart', () => {
  const key = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };

  it('what was taken over is the minimum: nothing is started beside it', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { minInstances: 2, maxInstances: 2 }));
    harness.launcher.adoptable.push(new FakeInstance('a', servedFunction(), key));
    harness.launcher.adoptable.push(new FakeInstance('b', servedFunction(), key));
    await harness.service.start();
    await settle();
    expect(harness.service.instances(null).map(({ instance }) => instance.id)).toEqual(['a', 'b']);
  });

  it('a call that came before does not pass the maximum', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { maxInstances: 1 }));
    const { result, instance } = await running(harness);
    const earlier = new FakeInstance('a', servedFunction(), key);
    harness.launcher.adoptable.push(earlier);
    await harness.service.start();
    await settle();
    expect(harness.service.instances(null)).toHaveLength(1);
    expect(earlier.isStopped).toBe(true);
    instance.calls[0]?.finish();
    await result;
  });
});

describe('where the time went', () => {
  it('a call that waited before its instance was started says so', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { slaQuotaMs: 500 }));
    const first = await running(harness);
    const late = harness.invoke();
    await settle();
    await harness.clock.advance(510);
    harness.launcher.launched[1]?.calls[0]?.finish();
    expect((await late).timings).toMatchObject({ queueMs: expect.closeTo(500 - 7, -1), startMs: 5, loadMs: 2 });
    first.instance.calls[0]?.finish();
    await first.result;
  });
});

it('an instance that cannot be started is 150500 wherever it is told', async () => {
  const observed: string[] = [];
  const harness = new ServiceHarness({ observe: (_tenant, _name, code) => observed.push(code) });
  harness.launcher.failure = unavailable('the driver is away');
  await expect(harness.invoke()).rejects.toMatchObject({ number: 150500, message: 'the driver is away' });
  expect(observed).toEqual(['150500']);
});

describe('tenants', () => {
  it('another tenant’s function answers as one that is not there, before anything is read', async () => {
    const harness = new ServiceHarness();
    await expect(harness.invoke({ tenant: 'other' })).rejects.toMatchObject({ number: 150424 });
    await expect(harness.service.check(URN, 'other')).rejects.toMatchObject({ number: 150424 });
    await expect(harness.service.endSession(URN, 'other', 's')).rejects.toMatchObject({ number: 150424 });
    expect(harness.catalog.finds).toBe(0);
    await call(harness, { tenant: 'default' });
    await expect(harness.invoke({ tenant: 'other' })).rejects.toMatchObject({ number: 150424 });
  });

  it('one tenant’s waiting calls have a bound over all its functions: 150510', async () => {
    const harness = new ServiceHarness({ maxWaitingPerTenant: 1 });
    const other = `${FUNCTION_URN}:v1`;
    harness.catalog.functions.set(URN, servedFunction({}, { maxInstances: 1 }));
    harness.catalog.functions.set(other, servedFunction({ urn: other }, { maxInstances: 1 }));
    const first = await running(harness);
    const waiting = harness.invoke();
    await settle();
    await expect(harness.invoke({ urn: other })).rejects.toMatchObject({ number: 150510, retryAfterSeconds: 1 });
    first.instance.calls[0]?.finish();
    await settle();
    first.instance.calls[0]?.finish();
    expect((await waiting).outcome.ok).toBe(true);
  });
});

describe('labels', () => {
  it('an unknown label is 150444; one that is reserved meanwhile is served, within its maximum', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    const sent = { 'x-instance-label': 'gold' };
    await expect(harness.invoke({ sent })).rejects.toMatchObject({ number: 150444 });
    harness.catalog.reservations.set(URN, new Map([['gold', { min: 1, max: 1 }]]));
    harness.catalog.tell(URN);
    await settle();
    expect(harness.launcher.live.map(({ key }) => key.label)).toEqual(['gold']);
    const { instance } = await running(harness, { sent });
    const second = harness.invoke({ sent });
    await settle();
    expect(harness.launcher.launched).toHaveLength(1);
    instance.calls[0]?.finish();
    await settle();
    instance.calls[0]?.finish();
    expect((await second).outcome.ok).toBe(true);
  });

  it('reservations that change while calls run keep the instances and their calls', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    harness.catalog.reservations.set(URN, new Map([['gold', { min: 1, max: 2 }]]));
    harness.catalog.tell(URN);
    await settle();
    const { result, instance } = await running(harness, { sent: { 'x-instance-label': 'gold' } });
    harness.catalog.reservations.set(URN, new Map([['gold', { min: 2, max: 2 }]]));
    harness.catalog.tell(URN);
    await settle();
    expect(harness.launcher.live).toHaveLength(2);
    instance.calls[0]?.finish();
    expect((await result).instanceId).toBe(instance.id);
  });
});

describe('calls', () => {
  it('an instance that broke before the call was sent is not the call’s failure', async () => {
    const harness = new ServiceHarness();
    await call(harness);
    const broken = harness.launcher.launched[0];
    if (broken) broken.isConnected = false;
    const { result, instance } = await running(harness);
    expect(instance.id).toBe('i2');
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
  });

  it('an instance that dies in the call: 150427; one that times out: 4010, and its instance is replaced', async () => {
    const harness = new ServiceHarness();
    const dying = await running(harness);
    dying.instance.calls[0]?.fail(unavailable('instance exited: signal SIGKILL'));
    await expect(dying.result).rejects.toMatchObject({ number: 150427 });
    dying.instance.die();
    await settle();
    const slow = await running(harness);
    slow.instance.calls[0]?.fail(deadlineExceeded('timed out after 60 s'));
    await expect(slow.result).rejects.toMatchObject({ number: 4010 });
    await settle();
    expect(slow.instance.isStopped).toBe(true);
  });

  it('the timeout of the function is given to the run, whatever the call waited', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({ timeoutMs: 20_000 }, { maxInstances: 1 }));
    const first = await running(harness);
    const second = harness.invoke();
    await harness.clock.advance(15_000);
    first.instance.calls[0]?.finish();
    await settle();
    expect(first.instance.calls[0]?.call.timeoutMs).toBe(20_000);
    first.instance.calls[0]?.finish();
    await second;
  });

  it('a call waits no longer than the bound, nor than its function’s timeout: 150431', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({ timeoutMs: 2_000 }, { maxInstances: 1 }));
    await running(harness);
    const waiting = harness.invoke();
    await harness.clock.advance(2_001);
    await expect(waiting).rejects.toMatchObject({ code: 'unavailable', number: 150431 });
  });

  it('code that cannot be loaded is an outcome of each call that waited for it', async () => {
    const harness = new ServiceHarness();
    harness.launcher.failure = new CodeFailure({ code: 4001, message: 'no module' });
    expect(await harness.invoke()).toMatchObject({ outcome: { ok: false, code: 4001, text: 'no module' } });
    expect(harness.observed).toEqual(['4001']);
  });

  it('a place of a caller who left is free once its handler has ended', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { maxInstances: 1 }));
    const caller = new AbortController();
    const left = await running(harness, { signal: caller.signal });
    const open = left.instance.calls[0];
    caller.abort();
    open?.fail(unavailable('the caller went away'));
    await expect(left.result).rejects.toThrow('went away');
    const next = harness.invoke();
    await settle();
    expect(left.instance.calls).toHaveLength(0);
    open?.call.onLateEnd?.();
    await settle();
    left.instance.calls[0]?.finish();
    expect((await next).instanceId).toBe(left.instance.id);
    expect(harness.observed).toEqual(['cancelled', 'ok']);
  });

  it('a handler that goes on after its caller left costs its instance', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { maxInstances: 1 }));
    const caller = new AbortController();
    const left = await running(harness, { signal: caller.signal });
    caller.abort();
    left.instance.calls[0]?.fail(unavailable('the caller went away'));
    await expect(left.result).rejects.toThrow();
    const next = harness.invoke();
    await harness.clock.advance(2_001);
    expect(left.instance.isStopped).toBe(true);
    harness.launcher.launched[1]?.calls[0]?.finish();
    expect((await next).instanceId).toBe('i2');
  });

  it('what is to be done before the run is done with the place held; when it fails, the call never runs', async () => {
    const harness = new ServiceHarness();
    const refused = harness.invoke({ beforeRun: () => Promise.reject(new Error('not ours')) });
    await expect(refused).rejects.toThrow('not ours');
    expect(harness.launcher.launched[0]?.calls).toHaveLength(0);
    await call(harness);
    expect(harness.launcher.launched).toHaveLength(1);
  });

  it('oneshot: every call has an instance of its own, which ends', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { oneshot: true }));
    const first = await call(harness);
    const second = await call(harness);
    expect(first.instanceId).not.toBe(second.instanceId);
    await settle();
    expect(harness.launcher.live).toHaveLength(0);
  });

  it('an instance larger than the machine is refused at once: 150510', async () => {
    const harness = new ServiceHarness();
    await expect(harness.invoke({ sent: { 'x-instance-memory': '99999' } })).rejects.toMatchObject({ number: 150510 });
    await expect(harness.invoke({ sent: { 'x-instance-cpu': '99999' } })).rejects.toMatchObject({ number: 150510 });
  });
});

describe('sessions', () => {
  const sent = { 'x-instance-session': 's1' };

  it('an interrupt reaches the running calls of the session and no others', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { concurrency: 2 }));
    const held = await running(harness, { sent });
    const other = await running(harness);
    const [ofSession, plain] = held.instance.calls;
    expect(await harness.service.interruptSession(URN, null, 's1')).toBe(true);
    expect(ofSession?.call.signal?.reason).toBe('interrupt');
    expect(plain?.call.signal).toBeUndefined();
    ofSession?.finish();
    plain?.finish();
    await Promise.all([held.result, other.result]);
  });

  it('what is not known is told: end and interrupt', async () => {
    const harness = new ServiceHarness();
    expect(await harness.service.endSession(URN, null, 's1')).toBe(false);
    expect(await harness.service.interruptSession(URN, null, 's1')).toBe(false);
    await call(harness, { sent });
    expect(await harness.service.endSession(URN, null, 's1')).toBe(true);
    expect(await harness.service.endSession(URN, null, 's1')).toBe(false);
  });

  it('more places than an instance has: 4037', async () => {
    const harness = new ServiceHarness();
    const tooMany = { 'x-instance-session': '{"sessionID":"s","concurrency":2}' };
    await expect(harness.invoke({ sent: tooMany })).rejects.toMatchObject({ number: 4037 });
  });
});

describe('the end', () => {
  it('running calls may end within the grace, then every instance is ended', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    const { result, instance } = await running(harness);
    const closing = harness.service.close(60_000);
    await settle();
    expect(instance.isStopped).toBe(false);
    await expect(harness.service.check(`${FUNCTION_URN}:v9`, null)).rejects.toMatchObject({ number: 150431 });
    instance.calls[0]?.finish();
    await result;
    await closing;
    expect(instance.isStopped).toBe(true);
    expect(harness.launcher.isClosed).toBe(true);
  });

  it('a call that does not end is not waited for', async () => {
    const harness = new ServiceHarness();
    const { instance } = await running(harness);
    await harness.service.close(0);
    expect(instance.isStopped).toBe(true);
  });
});

describe('ways into an instance', () => {
  it('are those of its sandbox, for its tenant; another id, or another tenant’s, is no instance', async () => {
    const harness = new ServiceHarness();
    const { instanceId } = await call(harness);
    const inside = {} as SandboxAccess;
    const instance = harness.launcher.launched[0] as FakeInstance & { access?: () => SandboxAccess };
    expect(() => harness.service.access(null, instanceId)).toThrow('have no ways in');
    instance.access = () => inside;
    expect(harness.service.access(null, instanceId)).toBe(inside);
    expect(harness.service.access(instance.urn.split(':')[3] ?? '', instanceId)).toBe(inside);
    expect(harness.service.access('other', instanceId)).toBeNull();
    expect(harness.service.access(null, 'i9')).toBeNull();
  });
});

describe('logs', () => {
  const request = { tail: null, sinceMs: null, follow: false, instanceId: null };
  const textOf = async (chunks: AsyncIterable<Buffer>) => {
    let text = '';
    for await (const chunk of chunks) text += chunk;
    return text;
  };

  it('of all instances, each line with its instance; of one as they are; unknown ones are told', async () => {
    const harness = new ServiceHarness();
    const calls = [await running(harness), await running(harness)];
    const signal = new AbortController().signal;
    expect(await textOf(await harness.service.logs(URN, null, request, signal))).toBe(
      '[i1] line of i1\n[i1] another\n[i2] line of i2\n[i2] another\n',
    );
    expect(await textOf(await harness.service.logs(URN, null, { ...request, instanceId: 'i2' }, signal))).toBe(
      'line of i2\nanother\n',
    );
    await expect(harness.service.logs(URN, null, { ...request, instanceId: 'i9' }, signal)).rejects.toMatchObject({
      number: 200404,
    });
    for (const { instance } of calls) instance.calls[0]?.finish();
  });

  it('a follower hears of instances that start later, until it leaves', async () => {
    const harness = new ServiceHarness();
    const leaving = new AbortController();
    const chunks = await harness.service.logs(URN, null, { ...request, follow: true }, leaving.signal);
    const text = textOf(chunks);
    await call(harness);
    await settle();
    leaving.abort();
    expect(await text).toBe('[i1] line of i1\n[i1] another\n');
  });

  describe('nobody is told of new instances', () => {
    const followed = { ...request, follow: true };
    /** Whether a log is opened for an instance that starts now. */
    const isTold = async (harness: ServiceHarness) => {
      const opened = vi.spyOn(FakeInstance.prototype, 'logs');
      await call(harness);
      await settle();
      const count = opened.mock.calls.length;
      opened.mockRestore();
      return count > 0;
    };

    it('whose caller left during the look-up', async () => {
      const harness = new ServiceHarness();
      const leaving = new AbortController();
      let open = () => {};
      harness.catalog.gate = new Promise(resolve => {
        open = resolve;
      });
      const chunks = harness.service.logs(URN, null, followed, leaving.signal);
      await settle();
      leaving.abort();
      open();
      expect(await textOf(await chunks)).toBe('');
      expect(await isTold(harness)).toBe(false);
    });

    it('who never reads', async () => {
      const harness = new ServiceHarness();
      await harness.service.logs(URN, null, followed, new AbortController().signal);
      expect(await isTold(harness)).toBe(false);
    });

    it('who stops reading, though its request is not over', async () => {
      const harness = new ServiceHarness();
      const instance = (await running(harness)).instance;
      for await (const chunk of await harness.service.logs(URN, null, followed, new AbortController().signal)) {
        expect(chunk.toString()).toContain('line of i1');
        break;
      }
      expect(await isTold(harness)).toBe(false);
      instance.calls[0]?.finish();
    });

    it('who left while it read', async () => {
      const harness = new ServiceHarness();
      const leaving = new AbortController();
      const text = textOf(await harness.service.logs(URN, null, followed, leaving.signal));
      await settle();
      leaving.abort();
      await text;
      expect(await isTold(harness)).toBe(false);
    });
  });
});

describe('the bodies of calls that wait', () => {
  const big = () => ({ header: { traceId: 't', traceparent: '', requestId: 'r' }, body: Buffer.alloc(600, '1') });
  const full = { number: 150510, message: 'the memory for open calls is full', retryAfterSeconds: 1 };
  /** One instance that is busy. */
  async function busy() {
    const openCallBytes = new OpenCallBytes(1000);
    const harness = new ServiceHarness({ openCallBytes });
    harness.catalog.functions.set(URN, servedFunction({}, { maxInstances: 1 }));
    const { instance } = await running(harness);
    return { harness, instance, openCallBytes };
  }

  it('take from the memory of open calls: above it a call is refused at once, and a small one still waits', async () => {
    const { harness, instance, openCallBytes } = await busy();
    const waiting = harness.invoke({ call: big() });
    await expect(harness.invoke({ call: big() })).rejects.toMatchObject(full);
    const small = harness.invoke();
    expect(openCallBytes.taken).toBe(602);
    for (let each = 0; each < 3; each++) {
      await settle();
      instance.calls[0]?.finish();
    }
    await Promise.all([waiting, small]);
    expect(openCallBytes.taken).toBe(0);
  });

  it('take from what agents and their calls left, and leave it to them', async () => {
    const { harness, instance, openCallBytes } = await busy();
    openCallBytes.take(500);
    await expect(harness.invoke({ call: big() })).rejects.toMatchObject(full);
    openCallBytes.give(500);
    const waiting = harness.invoke({ call: big() });
    expect(openCallBytes.fits(500)).toBe(false);
    instance.calls[0]?.finish();
    await settle();
    instance.calls[0]?.finish();
    await waiting;
  });

  it('are the instance’s from the turn on in which it gets them: nobody takes their room in between', async () => {
    const { harness, instance, openCallBytes } = await busy();
    const waiting = harness.invoke({
      call: big(),
      beforeRun: async () => {
        await settle();
        expect(openCallBytes.taken).toBe(600);
      },
    });
    const seen: number[] = [];
    const call = instance.call.bind(instance);
    instance.call = sent => {
      seen.push(openCallBytes.taken);
      return call(sent);
    };
    instance.calls[0]?.finish();
    await vi.waitFor(() => expect(seen).toHaveLength(1));
    instance.calls[0]?.finish();
    await waiting;
    expect(seen).toEqual([0]);
  });

  it('are given back when the wait is too long, the caller leaves, or what comes before the run fails', async () => {
    const { harness, instance, openCallBytes } = await busy();
    const leaving = new AbortController();
    const left = harness.invoke({ call: { ...big(), signal: leaving.signal } });
    leaving.abort();
    await expect(left).rejects.toThrow('the caller went away');
    expect(openCallBytes.taken).toBe(0);
    const late = harness.invoke({ call: big() });
    await harness.clock.advance(30_001);
    await expect(late).rejects.toMatchObject({ number: 150431 });
    expect(openCallBytes.taken).toBe(0);
    const unwritten = harness.invoke({
      call: big(),
      beforeRun: async () => {
        throw unavailable('the disk is full');
      },
    });
    await settle();
    instance.calls[0]?.finish();
    await expect(unwritten).rejects.toThrow('the disk is full');
    expect(openCallBytes.taken).toBe(0);
  });

  it('are given back when no instance can be started', async () => {
    const openCallBytes = new OpenCallBytes(1000);
    const harness = new ServiceHarness({ openCallBytes });
    harness.launcher.failure = unavailable('no room');
    await expect(harness.invoke({ call: big() })).rejects.toThrow('no room');
    expect(openCallBytes.taken).toBe(0);
  });
});

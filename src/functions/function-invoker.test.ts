import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { call, FUNCTION_URN, functionDefinition, InvokerHarness, running, URN } from '../../test/functions/harness.ts';
import { deadlineExceeded, PartAway, unavailable } from '../core/error.ts';
import { CodeFailure } from './function-instance.ts';

describe('timings of calls', () => {
  it('a call reports the time that it waited before its instance was started', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { slaQuotaMs: 500 }));
    const first = await running(harness);
    const late = harness.invoke();
    await settle();
    await harness.clock.advance(510);
    harness.launcher.launched[1]?.calls[0]?.finish();
    expect((await late).timings).toMatchObject({ queueMs: expect.closeTo(500 - 7, -1), startMs: 5, loadMs: 2 });
    first.instance.calls[0]?.finish();
    await first.result;
  });

  it('a delay before the invoker counts towards the waiting time and the limit of a call', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { maxInstances: 1 }));
    const first = await running(harness);
    const held = { header: { traceId: 't', traceparent: '', requestId: 'r' }, body: Buffer.from('{}'), waitedMs: 250 };
    const [served, late] = [harness.invoke({ call: held }), harness.invoke({ call: held })];
    await settle();
    await harness.clock.advance(1000);
    first.instance.calls[0]?.finish();
    await settle();
    let isOver = false;
    void late.catch(() => {
      isOver = true;
    });
    await harness.clock.advance(28_749);
    expect(isOver).toBe(false);
    await harness.clock.advance(1);
    await expect(late).rejects.toMatchObject({ number: 150431 });
    first.instance.calls[0]?.finish();
    const { queueMs, startMs, loadMs } = (await served).timings;
    expect(queueMs + startMs + loadMs).toBe(1250);
  });
});

it('a failed start of an instance is reported with 150500 everywhere', async () => {
  const observed: string[] = [];
  const harness = new InvokerHarness({ observe: (_tenant, _name, code) => observed.push(code) });
  harness.launcher.failure = unavailable('the driver is away');
  await expect(harness.invoke()).rejects.toMatchObject({ number: 150500, message: 'the driver is away' });
  await harness.clock.advance(60_000);
  harness.launcher.failure = new PartAway('docker is not available: nothing listens');
  const away = await harness.invoke().catch((error: unknown) => error);
  expect(away).toBeInstanceOf(PartAway);
  expect(away).toMatchObject({ number: 150500, retryAfterSeconds: 5 });
  expect(observed).toEqual(['150500', '150500']);
});

it('instances are counted by state from the moment when they start', async () => {
  const harness = new InvokerHarness();
  expect([...harness.invoker.countInstances()]).toEqual([]);
  const launch = harness.launcher.launch.bind(harness.launcher);
  let start = () => {};
  const mayStart = new Promise<void>(resolve => {
    start = resolve;
  });
  harness.launcher.launch = async (fn, key) => {
    await mayStart;
    return await launch(fn, key);
  };
  const result = harness.invoke();
  await settle();
  expect([...harness.invoker.countInstances()]).toEqual([['starting', 1]]);
  start();
  await settle();
  expect([...harness.invoker.countInstances()]).toEqual([['ready', 1]]);
  harness.launcher.launched[0]?.calls[0]?.finish();
  await result;
});

describe('tenants', () => {
  it('a function of another tenant answers as an unknown function, without a read', async () => {
    const harness = new InvokerHarness();
    await expect(harness.invoke({ tenant: 'other' })).rejects.toMatchObject({ number: 150424 });
    await expect(harness.invoker.check(URN, 'other')).rejects.toMatchObject({ number: 150424 });
    await expect(harness.invoker.endSession(URN, 'other', 's')).rejects.toMatchObject({ number: 150424 });
    expect(harness.catalog.finds).toBe(0);
    await call(harness, { tenant: 'default' });
    await expect(harness.invoke({ tenant: 'other' })).rejects.toMatchObject({ number: 150424 });
  });

  it('waiting calls of one tenant have a limit over all its functions: 150510', async () => {
    const harness = new InvokerHarness({ maxWaitingPerTenant: 1 });
    const other = `${FUNCTION_URN}:v1`;
    harness.catalog.functions.set(URN, functionDefinition({}, { maxInstances: 1 }));
    harness.catalog.functions.set(other, functionDefinition({ urn: other }, { maxInstances: 1 }));
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
  it('a call with an unknown label is 150444, and is served once the label is reserved, within its maximum', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
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
    const harness = new InvokerHarness();
    await harness.invoker.start();
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
  it('a call continues on another instance when its instance broke before the call was sent', async () => {
    const harness = new InvokerHarness();
    await call(harness);
    const broken = harness.launcher.launched[0];
    if (broken) broken.isConnected = false;
    const { result, instance } = await running(harness);
    expect(instance.id).toBe('i2');
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
  });

  it('a call fails with 150427 when its instance dies, and with 4010 on a timeout, which replaces the instance', async () => {
    const harness = new InvokerHarness();
    const dying = await running(harness);
    dying.instance.calls[0]?.fail(unavailable('instance exited: signal SIGKILL'));
    await expect(dying.result).rejects.toMatchObject({ number: 150427 });
    dying.instance.die();
    // Passes the pause after an early death.
    await harness.clock.advance(250);
    const slow = await running(harness);
    slow.instance.calls[0]?.fail(deadlineExceeded('timed out after 60 s'));
    await expect(slow.result).rejects.toMatchObject({ number: 4010 });
    await settle();
    expect(slow.instance.isStopped).toBe(true);
  });

  it('instances that die in their first call start again after pauses that double, whether their callers stay or leave', async () => {
    const harness = new InvokerHarness();
    const startsAt: number[] = [];
    const launch = harness.launcher.launch.bind(harness.launcher);
    harness.launcher.launch = (fn, key) => {
      startsAt.push(harness.clock.now());
      return launch(fn, key);
    };
    for (const leaves of [false, true, false, false]) {
      const caller = new AbortController();
      const result = harness.invoke({ signal: caller.signal });
      await harness.clock.advance(1000);
      const instance = harness.launcher.launched.at(-1);
      const open = instance?.calls[0];
      if (leaves) {
        caller.abort();
        open?.fail(unavailable('the caller went away'));
        await settle();
      }
      instance?.die();
      await settle();
      if (leaves) open?.call.onLateEnd?.();
      else open?.fail(unavailable('instance exited: signal SIGKILL'));
      await expect(result).rejects.toThrow();
    }
    // Each instance died 1 s after its call, followed by a pause of 250, 500 and 1000 ms.
    expect(startsAt).toEqual([0, 1250, 2500, 4000]);
    await expect(harness.invoke()).rejects.toMatchObject({ number: 150427, message: 'signal SIGKILL' });
  });

  it('a run has the whole timeout of the function, whatever the call waited', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({ timeoutMs: 20_000 }, { maxInstances: 1 }));
    const first = await running(harness);
    const second = harness.invoke();
    await harness.clock.advance(15_000);
    first.instance.calls[0]?.finish();
    await settle();
    expect(first.instance.calls[0]?.call.timeoutMs).toBe(20_000);
    first.instance.calls[0]?.finish();
    await second;
  });

  it('a call fails with 150431 when it waits longer than the limit or the timeout of its function', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({ timeoutMs: 2_000 }, { maxInstances: 1 }));
    await running(harness);
    const waiting = harness.invoke();
    await harness.clock.advance(2_001);
    await expect(waiting).rejects.toMatchObject({ code: 'unavailable', number: 150431 });
  });

  it('a load error of the code is the outcome of each call that waited for the instance', async () => {
    const harness = new InvokerHarness();
    harness.launcher.failure = new CodeFailure({ code: 4001, message: 'no module' });
    expect(await harness.invoke()).toMatchObject({ outcome: { ok: false, code: 4001, text: 'no module' } });
    expect(harness.observed).toEqual(['4001']);
  });

  it('the slot of a caller that left is free once the handler has ended', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { maxInstances: 1 }));
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

  it('an instance is replaced when its handler continues after the caller has left', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { maxInstances: 1 }));
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

  it('a step before the run holds the slot, and the call never runs when this step fails', async () => {
    const harness = new InvokerHarness();
    const refused = harness.invoke({ beforeRun: () => Promise.reject(new Error('not ours')) });
    await expect(refused).rejects.toThrow('not ours');
    expect(harness.launcher.launched[0]?.calls).toHaveLength(0);
    await call(harness);
    expect(harness.launcher.launched).toHaveLength(1);
  });

  it('each call of a oneshot function has a separate instance, which ends with the call', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { oneshot: true }));
    const first = await call(harness);
    const second = await call(harness);
    expect(first.instanceId).not.toBe(second.instanceId);
    await settle();
    expect(harness.launcher.live).toHaveLength(0);
  });

  it('an instance larger than the machine is refused at once: 150510', async () => {
    const harness = new InvokerHarness();
    await expect(harness.invoke({ sent: { 'x-instance-memory': '99999' } })).rejects.toMatchObject({ number: 150510 });
    await expect(harness.invoke({ sent: { 'x-instance-cpu': '99999' } })).rejects.toMatchObject({ number: 150510 });
  });
});

describe('sessions', () => {
  const sent = { 'x-instance-session': 's1' };

  it('an interrupt reaches the running calls of the session and no others', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { concurrency: 2 }));
    const held = await running(harness, { sent });
    const other = await running(harness);
    const [ofSession, plain] = held.instance.calls;
    expect(await harness.invoker.interruptSession(URN, null, 's1')).toBe(true);
    expect(ofSession?.call.signal?.reason).toBe('interrupt');
    expect(plain?.call.signal).toBeUndefined();
    ofSession?.finish();
    plain?.finish();
    await Promise.all([held.result, other.result]);
  });

  it('an interrupt reaches a call that continues after the end of its session', async () => {
    const harness = new InvokerHarness();
    const { result, instance } = await running(harness, { sent });
    expect(await harness.invoker.endSession(URN, null, 's1')).toBe(true);
    expect(await harness.invoker.interruptSession(URN, null, 's1')).toBe(true);
    expect(instance.calls[0]?.call.signal?.reason).toBe('interrupt');
    instance.calls[0]?.finish();
    await result;
    expect(await harness.invoker.interruptSession(URN, null, 's1')).toBe(false);
  });

  it('a session is notified of each interrupt, and then of its caller’s end', async () => {
    const harness = new InvokerHarness();
    const caller = new AbortController();
    const { result, instance } = await running(harness, { sent, signal: caller.signal });
    const open = instance.calls[0];
    const signal = open?.call.signal;
    const told: unknown[] = [];
    signal?.addEventListener('abort', () => told.push(signal.aborted ? 'left' : signal.reason));
    await harness.invoker.interruptSession(URN, null, 's1');
    await harness.invoker.interruptSession(URN, null, 's1');
    caller.abort();
    await harness.invoker.interruptSession(URN, null, 's1');
    expect(told).toEqual(['interrupt', 'interrupt', 'left']);
    open?.fail(unavailable('the caller went away'));
    await expect(result).rejects.toThrow('went away');
    await harness.clock.advance(2_001);
    expect(instance.isStopped).toBe(true);
  });

  it.each(['it gets its slot', 'it is sent'])(
    'a call whose caller left before %s is aborted from the start',
    async when => {
      const harness = new InvokerHarness();
      await call(harness, { sent });
      const caller = new AbortController();
      if (when === 'it gets its slot') caller.abort();
      const { result, instance } = await running(harness, {
        sent,
        signal: caller.signal,
        beforeRun: async () => caller.abort(),
      });
      expect(instance.calls[0]?.call.signal?.aborted).toBe(true);
      instance.calls[0]?.fail(unavailable('the caller went away'));
      await expect(result).rejects.toThrow('went away');
    },
  );

  it('end and interrupt of an unknown session return false', async () => {
    const harness = new InvokerHarness();
    expect(await harness.invoker.endSession(URN, null, 's1')).toBe(false);
    expect(await harness.invoker.interruptSession(URN, null, 's1')).toBe(false);
    await call(harness, { sent });
    expect(await harness.invoker.endSession(URN, null, 's1')).toBe(true);
    expect(await harness.invoker.endSession(URN, null, 's1')).toBe(false);
  });

  it('a session that requests more slots than an instance has is 4037', async () => {
    const harness = new InvokerHarness();
    const tooMany = { 'x-instance-session': '{"sessionID":"s","concurrency":2}' };
    await expect(harness.invoke({ sent: tooMany })).rejects.toMatchObject({ number: 4037 });
  });
});

describe('the end of FunctionInvoker', () => {
  it('running calls may end within the grace, then every instance is ended', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    const { result, instance } = await running(harness);
    const closing = harness.invoker.close(60_000);
    await settle();
    expect(instance.isStopped).toBe(false);
    await expect(harness.invoker.check(`${FUNCTION_URN}:v9`, null)).rejects.toMatchObject({ number: 150431 });
    instance.calls[0]?.finish();
    await result;
    await closing;
    expect(instance.isStopped).toBe(true);
    expect(harness.launcher.isClosed).toBe(true);
  });

  it('a close does not wait for a call that exceeds the grace', async () => {
    const harness = new InvokerHarness();
    const { instance } = await running(harness);
    await harness.invoker.close(0);
    expect(instance.isStopped).toBe(true);
  });
});

import { describe, expect, it, vi } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { functionDefinition, InvokerHarness, running, URN } from '../../test/functions/harness.ts';
import { unavailable } from '../core/error.ts';
import { TenantBudget } from '../lib/budgets.ts';

describe('bodies of waiting calls', () => {
  const big = () => ({ header: { traceId: 't', traceparent: '', requestId: 'r' }, body: Buffer.alloc(600, '1') });
  const full = { number: 150510, message: 'the memory for open calls is full', retryAfterSeconds: 1 };
  /** Makes an invoker with one busy instance. */
  async function busy(openCallBytes = new TenantBudget(1000)) {
    const harness = new InvokerHarness({ openCallBytes });
    harness.catalog.functions.set(URN, functionDefinition({}, { maxInstances: 1 }));
    const { instance } = await running(harness);
    return { harness, instance, openCallBytes };
  }

  it('bodies of waiting calls use the memory of open calls, and a call above it is refused at once', async () => {
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

  it('bodies of one tenant’s waiting calls do not fill all memory when a tenant has a limit', async () => {
    const { harness, instance, openCallBytes } = await busy(new TenantBudget(2000, 1000));
    const waiting = harness.invoke({ call: big() });
    await expect(harness.invoke({ call: big() })).rejects.toMatchObject(full);
    expect(openCallBytes.fits('other', 1000)).toBe(true);
    for (let each = 0; each < 2; each++) {
      await settle();
      instance.calls[0]?.finish();
    }
    await waiting;
    expect(openCallBytes.taken).toBe(0);
  });

  it('bodies of waiting calls share the memory of open calls with calls of agents', async () => {
    const { harness, instance, openCallBytes } = await busy();
    openCallBytes.acquire('t', 500);
    await expect(harness.invoke({ call: big() })).rejects.toMatchObject(full);
    openCallBytes.release('t', 500);
    const waiting = harness.invoke({ call: big() });
    expect(openCallBytes.fits('t', 500)).toBe(false);
    instance.calls[0]?.finish();
    await settle();
    instance.calls[0]?.finish();
    await waiting;
  });

  it('the bytes of a body count towards its instance from the turn in which the call gets a slot', async () => {
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

  it('bodies of waiting calls are released when the wait is too long, the caller leaves, or a step before the run fails', async () => {
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

  it('bodies of waiting calls are released when no instance can be started', async () => {
    const openCallBytes = new TenantBudget(1000);
    const harness = new InvokerHarness({ openCallBytes });
    harness.launcher.failure = unavailable('no room');
    await expect(harness.invoke({ call: big() })).rejects.toThrow('no room');
    expect(openCallBytes.taken).toBe(0);
  });
});

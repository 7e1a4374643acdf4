import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import {
  call,
  FakeInstance,
  FUNCTION_URN,
  functionDefinition,
  InvokerHarness,
  running,
  URN,
} from '../../test/functions/harness.ts';

describe('versions in memory', () => {
  it('a warm call does not read the registry', async () => {
    const harness = new InvokerHarness();
    await call(harness);
    await call(harness);
    expect(harness.catalog.finds).toBe(1);
  });

  it('parallel calls share one read of a version', async () => {
    const harness = new InvokerHarness();
    const calls = [harness.invoke(), harness.invoke(), harness.invoke()];
    await settle();
    for (const { calls: open } of harness.launcher.launched) open[0]?.finish();
    await Promise.all(calls);
    expect(harness.catalog.finds).toBe(1);
  });

  it('the first call after a change runs on the new revision', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    const old = await call(harness);
    harness.catalog.put(functionDefinition({ revisionId: 'r2' }));
    const { result, instance } = await running(harness);
    expect(instance.revisionId).toBe('r2');
    instance.calls[0]?.finish();
    expect((await result).instanceId).not.toBe(old.instanceId);
    // The old instance was idle, so the scaler stopped it.
    expect(harness.launcher.launched[0]?.isStopped).toBe(true);
  });

  it('a call runs on the new revision when the function changes while its version is read', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    let open!: () => void;
    harness.catalog.gate = new Promise(resolve => {
      open = resolve;
    });
    const result = harness.invoke();
    await settle();
    harness.catalog.put(functionDefinition({ revisionId: 'r2' }));
    open();
    await settle();
    const [instance] = harness.launcher.launched;
    expect(instance?.revisionId).toBe('r2');
    instance?.calls[0]?.finish();
    await result;
  });

  it('an update lets running calls end on the old revision', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    const { result, instance } = await running(harness);
    harness.catalog.put(functionDefinition({ revisionId: 'r2' }));
    await settle();
    expect(instance.isStopped).toBe(false);
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
    await settle();
    expect(instance.isStopped).toBe(true);
  });

  it('a delete lets running calls end, and later calls fail with 150424', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    const { result, instance } = await running(harness);
    harness.catalog.remove(URN);
    await expect(harness.invoke()).rejects.toMatchObject({ code: 'not_found', number: 150424 });
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
    await settle();
    expect(instance.isStopped).toBe(true);
    expect(harness.invoker.instances(null)).toEqual([]);
  });

  it('an idle session does not keep an instance of an old revision', async () => {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    await call(harness, { sent: { 'x-instance-session': '{"sessionID":"s","sessionTTL":3600}' } });
    harness.catalog.put(functionDefinition({ revisionId: 'r2' }));
    await settle();
    expect(harness.launcher.launched[0]?.isStopped).toBe(true);
  });

  it('FunctionInvoker starts the minimum of instances at its start and after a change, without a call', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { minInstances: 2 }));
    await harness.invoker.start();
    await settle();
    expect(harness.launcher.live).toHaveLength(2);
    harness.catalog.put(functionDefinition({ revisionId: 'r2' }, { minInstances: 1 }));
    await settle();
    expect(harness.launcher.live.map(({ revisionId }) => revisionId)).toEqual(['r2']);
  });

  it('FunctionInvoker forgets unused versions above its limit and keeps used versions', async () => {
    const harness = new InvokerHarness({ maxRemembered: 2 });
    const urns = ['v1', 'v2', 'v3', 'v4'].map(version => `${FUNCTION_URN}:${version}`);
    for (const urn of urns) harness.catalog.functions.set(urn, functionDefinition({ urn }));
    await call(harness);
    for (const urn of urns) await harness.invoker.check(urn, null);
    expect(harness.catalog.finds).toBe(5);
    await call(harness);
    await harness.invoker.check(urns.at(-1) ?? '', null);
    expect(harness.catalog.finds).toBe(5);
    await harness.invoker.check(urns[0] ?? '', null);
    expect(harness.catalog.finds).toBe(6);
  });

  it('recovered instances are adopted when their revision is current, and stopped otherwise', async () => {
    const harness = new InvokerHarness();
    const key = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };
    const good = new FakeInstance('good', functionDefinition(), key);
    const old = new FakeInstance('old', functionDefinition({ revisionId: 'r0' }), key);
    const orphan = new FakeInstance('orphan', functionDefinition({ urn: `${FUNCTION_URN}:gone` }), key);
    harness.launcher.adoptable.push(good, old, orphan);
    await harness.invoker.start();
    await settle();
    expect([good.isStopped, old.isStopped, orphan.isStopped]).toEqual([false, true, true]);
    const result = harness.invoke();
    await settle();
    good.calls[0]?.finish();
    expect((await result).instanceId).toBe('good');
  });
});

describe('FunctionInvoker after a restart', () => {
  const key = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };

  it('adopted instances count towards the minimum, so no further instance starts', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { minInstances: 2, maxInstances: 2 }));
    harness.launcher.adoptable.push(new FakeInstance('a', functionDefinition(), key));
    harness.launcher.adoptable.push(new FakeInstance('b', functionDefinition(), key));
    await harness.invoker.start();
    await settle();
    expect(harness.invoker.instances(null).map(({ instance }) => instance.id)).toEqual(['a', 'b']);
  });

  it('FunctionInvoker stops a recovered instance when an earlier call already uses the maximum', async () => {
    const harness = new InvokerHarness();
    harness.catalog.functions.set(URN, functionDefinition({}, { maxInstances: 1 }));
    const { result, instance } = await running(harness);
    const earlier = new FakeInstance('a', functionDefinition(), key);
    harness.launcher.adoptable.push(earlier);
    await harness.invoker.start();
    await settle();
    expect(harness.invoker.instances(null)).toHaveLength(1);
    expect(earlier.isStopped).toBe(true);
    instance.calls[0]?.finish();
    await result;
  });
});

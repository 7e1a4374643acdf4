import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import {
  call,
  FakeInstance,
  FUNCTION_URN,
  running,
  ServiceHarness,
  servedFunction,
  URN,
} from '../../test/functions/harness.ts';

describe('versions in memory', () => {
  it('a warm call does not read the registry', async () => {
    const harness = new ServiceHarness();
    await call(harness);
    await call(harness);
    expect(harness.catalog.finds).toBe(1);
  });

  it('parallel calls share one read of a version', async () => {
    const harness = new ServiceHarness();
    const calls = [harness.invoke(), harness.invoke(), harness.invoke()];
    await settle();
    for (const { calls: open } of harness.starter.launched) open[0]?.finish();
    await Promise.all(calls);
    expect(harness.catalog.finds).toBe(1);
  });

  it('the first call after a change runs on the new revision', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    const old = await call(harness);
    harness.catalog.put(servedFunction({ revisionId: 'r2' }));
    const { result, instance } = await running(harness);
    expect(instance.revisionId).toBe('r2');
    instance.calls[0]?.finish();
    expect((await result).instanceId).not.toBe(old.instanceId);
    // The old instance was idle, so the service stopped it.
    expect(harness.starter.launched[0]?.isStopped).toBe(true);
  });

  it('a call runs on the new revision when the function changes while its version is read', async () => {
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
    const [instance] = harness.starter.launched;
    expect(instance?.revisionId).toBe('r2');
    instance?.calls[0]?.finish();
    await result;
  });

  it('an update lets running calls end on the old revision', async () => {
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

  it('a delete lets running calls end, and later calls fail with 150424', async () => {
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

  it('an idle session does not keep an instance of an old revision', async () => {
    const harness = new ServiceHarness();
    await harness.service.start();
    await call(harness, { sent: { 'x-instance-session': '{"sessionID":"s","sessionTTL":3600}' } });
    harness.catalog.put(servedFunction({ revisionId: 'r2' }));
    await settle();
    expect(harness.starter.launched[0]?.isStopped).toBe(true);
  });

  it('the service starts the minimum of instances at its start and after a change, without a call', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { minInstances: 2 }));
    await harness.service.start();
    await settle();
    expect(harness.starter.live).toHaveLength(2);
    harness.catalog.put(servedFunction({ revisionId: 'r2' }, { minInstances: 1 }));
    await settle();
    expect(harness.starter.live.map(({ revisionId }) => revisionId)).toEqual(['r2']);
  });

  it('the service forgets unused versions above its limit and keeps used versions', async () => {
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

  it('recovered instances are adopted when their revision is current, and stopped otherwise', async () => {
    const harness = new ServiceHarness();
    const key = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };
    const good = new FakeInstance('good', servedFunction(), key);
    const old = new FakeInstance('old', servedFunction({ revisionId: 'r0' }), key);
    const orphan = new FakeInstance('orphan', servedFunction({ urn: `${FUNCTION_URN}:gone` }), key);
    harness.starter.adoptable.push(good, old, orphan);
    await harness.service.start();
    await settle();
    expect([good.isStopped, old.isStopped, orphan.isStopped]).toEqual([false, true, true]);
    const result = harness.invoke();
    await settle();
    good.calls[0]?.finish();
    expect((await result).instanceId).toBe('good');
  });
});

describe('the function service after a restart', () => {
  const key = { cpuMillis: 500, memoryMb: 128, customResources: '', label: '', sessionContext: '' };

  it('adopted instances count towards the minimum, so no further instance starts', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { minInstances: 2, maxInstances: 2 }));
    harness.starter.adoptable.push(new FakeInstance('a', servedFunction(), key));
    harness.starter.adoptable.push(new FakeInstance('b', servedFunction(), key));
    await harness.service.start();
    await settle();
    expect(harness.service.instances(null).map(({ instance }) => instance.id)).toEqual(['a', 'b']);
  });

  it('the service stops a recovered instance when an earlier call already uses the maximum', async () => {
    const harness = new ServiceHarness();
    harness.catalog.functions.set(URN, servedFunction({}, { maxInstances: 1 }));
    const { result, instance } = await running(harness);
    const earlier = new FakeInstance('a', servedFunction(), key);
    harness.starter.adoptable.push(earlier);
    await harness.service.start();
    await settle();
    expect(harness.service.instances(null)).toHaveLength(1);
    expect(earlier.isStopped).toBe(true);
    instance.calls[0]?.finish();
    await result;
  });
});

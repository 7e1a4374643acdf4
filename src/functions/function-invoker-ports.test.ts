import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { functionDefinition, InvokerHarness, running, URN } from '../../test/functions/harness.ts';
import { HostAccess } from '../../test/http/host-access.ts';

describe('a request to a port of a function', () => {
  const inside = new HostAccess('/');

  async function one() {
    const harness = new InvokerHarness();
    await harness.invoker.start();
    harness.catalog.functions.set(
      URN,
      functionDefinition({ expose: { port: 8000, access: 'public' } }, { maxInstances: 1 }),
    );
    const { instance } = await running(harness);
    Object.assign(instance, { access: () => inside });
    instance.calls[0]?.finish();
    await settle();
    return { harness, instance };
  }

  it('a request to a port occupies a slot of an instance until the request ends', async () => {
    const { harness } = await one();
    const over = new AbortController();
    expect(await harness.invoker.open(URN, over.signal)).toBe(inside);
    expect(harness.invoker.instances(URN)[0]?.inFlight).toBe(1);
    const next = new AbortController();
    let isOpen = false;
    const waiting = harness.invoker.open(URN, next.signal).then(() => {
      isOpen = true;
    });
    await settle();
    expect(isOpen).toBe(false);
    over.abort();
    await waiting;
    next.abort();
    expect(harness.invoker.instances(URN)[0]?.inFlight).toBe(0);
  });

  it('a request to a port releases its slot when its caller has disconnected', async () => {
    const { harness } = await one();
    const over = new AbortController();
    over.abort();
    await harness.invoker.open(URN, over.signal).catch(() => undefined);
    expect(harness.invoker.instances(URN)[0]?.inFlight).toBe(0);
  });

  it('exposed returns the exposed port, or null for an unexposed or unknown function', async () => {
    const { harness } = await one();
    expect(await harness.invoker.exposed(URN)).toEqual({ port: 8000, access: 'public' });
    harness.catalog.put(functionDefinition({ revisionId: 'r2' }));
    expect(await harness.invoker.exposed(URN)).toBeNull();
    expect(await harness.invoker.exposed(URN.replace('hello', 'none'))).toBeNull();
  });
});

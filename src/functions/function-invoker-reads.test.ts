import { describe, expect, it, vi } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { call, FakeInstance, InvokerHarness, running, URN } from '../../test/functions/harness.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogRequest } from '../sandbox/driver.ts';

describe('access to an instance', () => {
  it('access returns the sandbox access of an instance to its tenant, and null for other tenants and ids', async () => {
    const harness = new InvokerHarness();
    const { instanceId } = await call(harness);
    const inside = {} as SandboxAccess;
    const instance = harness.launcher.launched[0] as FakeInstance & { access?: () => SandboxAccess };
    expect(() => harness.invoker.access(null, instanceId)).toThrow('do not support commands, files and ports');
    instance.access = () => inside;
    expect(harness.invoker.access(null, instanceId)).toBe(inside);
    expect(harness.invoker.access(instance.urn.split(':')[3] ?? '', instanceId)).toBe(inside);
    expect(harness.invoker.access('other', instanceId)).toBeNull();
    expect(harness.invoker.access(null, 'i9')).toBeNull();
  });
});

describe('logs of a function', () => {
  const request = { tail: null, sinceMs: null, follow: false, instanceId: null };
  const textOf = async (chunks: AsyncIterable<Buffer>) => {
    let text = '';
    for await (const chunk of chunks) text += chunk;
    return text;
  };

  it('logs prefixes lines with the instance unless one is selected, and rejects an unknown instance', async () => {
    const harness = new InvokerHarness();
    const calls = [await running(harness), await running(harness)];
    const signal = new AbortController().signal;
    expect(await textOf(await harness.invoker.logs(URN, null, request, signal))).toBe(
      '[i1] line of i1\n[i1] another\n[i2] line of i2\n[i2] another\n',
    );
    expect(await textOf(await harness.invoker.logs(URN, null, { ...request, instanceId: 'i2' }, signal))).toBe(
      'line of i2\nanother\n',
    );
    await expect(harness.invoker.logs(URN, null, { ...request, instanceId: 'i9' }, signal)).rejects.toMatchObject({
      number: 200404,
    });
    for (const { instance } of calls) instance.calls[0]?.finish();
  });

  it('a follower receives lines of instances that start later, until the follower disconnects', async () => {
    const harness = new InvokerHarness();
    const leaving = new AbortController();
    const chunks = await harness.invoker.logs(URN, null, { ...request, follow: true }, leaving.signal);
    const text = textOf(chunks);
    await call(harness);
    await settle();
    leaving.abort();
    expect(await text).toBe('[i1] line of i1\n[i1] another\n');
  });

  it('open opens the logs of running instances, and those of later instances are read whole', async () => {
    const harness = new InvokerHarness();
    const { instance } = await running(harness);
    const leaving = new AbortController();
    const followed = { ...request, tail: 0, follow: true };
    using opened = vi.spyOn(FakeInstance.prototype, 'logs');
    const tails = () => opened.mock.calls.map(args => (args as unknown as [LogRequest])[0].tail);
    const log = await harness.invoker.logs(URN, null, followed, leaving.signal);
    expect(tails()).toEqual([]);
    await log.open?.();
    expect(tails()).toEqual([0]);
    const text = textOf(log);
    const later = await running(harness);
    await settle();
    expect(tails()).toEqual([0, null]);
    leaving.abort();
    expect(await text).toContain('[i2] line of i2');
    for (const each of [instance, later.instance]) each.calls[0]?.finish();
  });

  describe('a reader that has ended', () => {
    const followed = { ...request, follow: true };
    /** Starts an instance, and returns true if its log is opened. */
    const isTold = async (harness: InvokerHarness) => {
      const opened = vi.spyOn(FakeInstance.prototype, 'logs');
      await call(harness);
      await settle();
      const count = opened.mock.calls.length;
      opened.mockRestore();
      return count > 0;
    };

    it('no log of a new instance is opened when the caller disconnected during the lookup', async () => {
      const harness = new InvokerHarness();
      const leaving = new AbortController();
      let open = () => {};
      harness.catalog.gate = new Promise(resolve => {
        open = resolve;
      });
      const chunks = harness.invoker.logs(URN, null, followed, leaving.signal);
      await settle();
      leaving.abort();
      open();
      expect(await textOf(await chunks)).toBe('');
      expect(await isTold(harness)).toBe(false);
    });

    it('no log of a new instance is opened when the caller never reads', async () => {
      const harness = new InvokerHarness();
      await harness.invoker.logs(URN, null, followed, new AbortController().signal);
      expect(await isTold(harness)).toBe(false);
    });

    it('no log of a new instance is opened when the reader stops while its request is open', async () => {
      const harness = new InvokerHarness();
      const instance = (await running(harness)).instance;
      for await (const chunk of await harness.invoker.logs(URN, null, followed, new AbortController().signal)) {
        expect(chunk.toString()).toContain('line of i1');
        break;
      }
      expect(await isTold(harness)).toBe(false);
      instance.calls[0]?.finish();
    });

    it('no log of a new instance is opened when the caller disconnected while reading', async () => {
      const harness = new InvokerHarness();
      const leaving = new AbortController();
      const text = textOf(await harness.invoker.logs(URN, null, followed, leaving.signal));
      await settle();
      leaving.abort();
      await text;
      expect(await isTold(harness)).toBe(false);
    });
  });
});

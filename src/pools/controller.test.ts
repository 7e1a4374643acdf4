import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { PoolController, type PoolControllerOptions } from './controller.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('look starts a pass within a second although the clock jumped while the next pass was far away', async () => {
  const all = vi.fn(async () => []);
  const backend = {
    isCurrent: true,
    open: async () => undefined,
    onChange: () => () => undefined,
    ids: () => new Set(['p']),
    remove: async () => true,
    view: () => ({ set: null, pods: [] }),
  };
  const controller = new PoolController({
    records: { all, report: async () => true, remove: async () => undefined, refusal: () => null },
    backend: async () => backend,
    isHeld: () => true,
    log: { info: () => undefined, warn: () => undefined },
  } as unknown as PoolControllerOptions);
  controller.start();
  await vi.advanceTimersByTimeAsync(1000);
  const looks = all.mock.calls.length;
  expect(looks).toBeGreaterThan(0);
  vi.setSystemTime(Date.now() + 2 * 3_600_000);
  controller.requestPass();
  await vi.advanceTimersByTimeAsync(1000);
  expect(all.mock.calls.length).toBeGreaterThan(looks);
  await controller.close();
});

import { afterEach, expect, test, vi } from 'vitest';
import { HeldBytes, type Holder } from './held-bytes.ts';

afterEach(() => vi.useRealTimers());

function holderOf(gaveUp: string[], name: string): Holder {
  return { giveUp: () => void gaveUp.push(name) };
}

test('all together never hold more than the bound: whoever has held the most for the longest gives up', () => {
  vi.useFakeTimers();
  const gaveUp: string[] = [];
  const held = new HeldBytes(100);
  held.hold(holderOf(gaveUp, 'small and old'), 5);
  held.hold(holderOf(gaveUp, 'large and old'), 60);
  vi.advanceTimersByTime(1000);
  held.hold(holderOf(gaveUp, 'large and new'), 60);
  expect(gaveUp).toEqual(['large and old']);
  expect(held.bytes).toBe(65);
});

test('bytes that are released make room again, and count once', () => {
  const gaveUp: string[] = [];
  const held = new HeldBytes(100);
  const first = holderOf(gaveUp, 'first');
  held.hold(first, 40);
  held.hold(first, 90);
  expect(held.bytes).toBe(90);
  held.release(first);
  held.release(first);
  held.hold(holderOf(gaveUp, 'second'), 100);
  expect(gaveUp).toEqual([]);
});

test('a taker that wants more than there is gives up itself', () => {
  const gaveUp: string[] = [];
  const held = new HeldBytes(100);
  held.hold(holderOf(gaveUp, 'greedy'), 101);
  expect([gaveUp, held.bytes]).toEqual([['greedy'], 0]);
});

import { afterEach, expect, test, vi } from 'vitest';
import { HeldBytes, type Holder } from './budgets.ts';

afterEach(() => vi.useRealTimers());

function holderOf(gaveUp: string[], name: string): Holder {
  return { abandon: () => void gaveUp.push(name) };
}

test('HeldBytes makes the holder with the most bytes times time give up above the bound', () => {
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

test('HeldBytes counts each holder once and frees the capacity of released bytes', () => {
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

test('HeldBytes makes a holder give up when its bytes alone exceed the bound', () => {
  const gaveUp: string[] = [];
  const held = new HeldBytes(100);
  held.hold(holderOf(gaveUp, 'greedy'), 101);
  expect([gaveUp, held.bytes]).toEqual([['greedy'], 0]);
});

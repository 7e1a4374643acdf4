import { expect, test } from 'vitest';
import { Steps } from './steps.ts';

test('Steps takes every step, reports each failure, and throws the first failure at the end', async () => {
  const told: unknown[] = [];
  const steps = new Steps(error => told.push(error));
  const [first, second] = [new Error('first'), new Error('second')];
  expect(await steps.take(() => 1)).toBe(1);
  expect(await steps.take(() => Promise.reject(first))).toBeUndefined();
  expect(await steps.take(async () => 2)).toBe(2);
  const fails = () => {
    throw second;
  };
  expect(await steps.take(fails)).toBeUndefined();
  expect(told).toEqual([first, second]);
  expect(() => steps.end()).toThrow(first);
});

test('Steps ends without an error when all steps succeed', async () => {
  const steps = new Steps(() => undefined);
  await steps.take(async () => undefined);
  steps.end();
});

import { expect, test } from 'vitest';
import { ShutdownSequence } from './shutdown-sequence.ts';

test('ShutdownSequence runs every step, reports each failure, and throws the first failure at the end', async () => {
  const told: unknown[] = [];
  const steps = new ShutdownSequence(error => told.push(error));
  const [first, second] = [new Error('first'), new Error('second')];
  expect(await steps.run(() => 1)).toBe(1);
  expect(await steps.run(() => Promise.reject(first))).toBeUndefined();
  expect(await steps.run(async () => 2)).toBe(2);
  const fails = () => {
    throw second;
  };
  expect(await steps.run(fails)).toBeUndefined();
  expect(told).toEqual([first, second]);
  expect(() => steps.end()).toThrow(first);
});

test('ShutdownSequence ends without an error when all steps succeed', async () => {
  const steps = new ShutdownSequence(() => undefined);
  await steps.run(async () => undefined);
  steps.end();
});

import { expect, test } from 'vitest';
import { fuzzHttpBridge } from './http-bridge.ts';

test('a call of kind http ends with a value or a failure for any answer of its server', async () => {
  const { iterations, faults } = await fuzzHttpBridge({ seed: 11, maxIterations: 15, maxSeconds: 60 });
  expect(faults).toEqual([]);
  expect(iterations).toBeGreaterThan(0);
}, 120_000);

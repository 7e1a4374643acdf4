import { expect, test } from 'vitest';
import { fuzzHttpBridge } from './http-bridge.ts';

test('any answer of a server of kind http ends its call, with a value or as a failure of it', async () => {
  const { iterations, faults } = await fuzzHttpBridge({ seed: 11, maxIterations: 15, maxSeconds: 60 });
  expect(faults).toEqual([]);
  expect(iterations).toBeGreaterThan(0);
}, 120_000);

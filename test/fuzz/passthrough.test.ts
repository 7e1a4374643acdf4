import { expect, test } from 'vitest';
import { fuzzPassthrough } from './passthrough.ts';

test('no answer of a server inside escapes, hangs or reaches another caller, and no token reaches the inside', async () => {
  const { iterations, faults } = await fuzzPassthrough({ seed: 7, maxIterations: 40, maxSeconds: 60 });
  expect(faults).toEqual([]);
  expect(iterations).toBeGreaterThan(0);
}, 120_000);

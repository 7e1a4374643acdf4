import { expect, test } from 'vitest';
import { fuzzEnvd } from './envd.ts';

test('no request to port 49983 escapes or hangs, and no listener is left', async () => {
  const { iterations, faults, counts } = await fuzzEnvd({ seed: 11, maxIterations: 600, maxSeconds: 25 });
  expect(faults).toEqual([]);
  expect(iterations).toBeGreaterThan(0);
  expect(counts.answers).toBeGreaterThan(0);
}, 120_000);

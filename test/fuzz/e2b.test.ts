import { expect, test } from 'vitest';
import { fuzzE2b } from './e2b.ts';

test('every body and query of the E2B control API is read or refused as invalid', async () => {
  const { iterations, faults, counts } = await fuzzE2b({ seed: 5, maxIterations: 20_000, maxSeconds: 20 });
  expect(faults).toEqual([]);
  expect(iterations).toBeGreaterThan(0);
  expect(Math.min(counts.read ?? 0, counts.refused ?? 0)).toBeGreaterThan(0);
}, 60_000);

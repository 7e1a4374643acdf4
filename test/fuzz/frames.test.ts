import { expect, test } from 'vitest';
import { fuzzFrames } from './frames.ts';

test('no frame of a runtime escapes: each call settles, a broken protocol closes its connection, and memory is bounded', async () => {
  const report = await fuzzFrames({ seed: 20_261_122, maxIterations: 600, maxSeconds: 25 });
  expect(report.faults).toEqual([]);
  expect(report.counts.calls).toBeGreaterThan(0);
  expect(report.counts.broken).toBeGreaterThan(0);
});

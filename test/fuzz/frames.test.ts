import { expect, test } from 'vitest';
import { fuzzFrames } from './frames.ts';

test('whatever a runtime sends: nothing escapes, each call settles, what breaks the protocol is closed, and nothing grows', async () => {
  const report = await fuzzFrames({ seed: 20_261_122, maxIterations: 600, maxSeconds: 25 });
  expect(report.faults).toEqual([]);
  expect(report.counts.calls).toBeGreaterThan(0);
  expect(report.counts.broken).toBeGreaterThan(0);
});

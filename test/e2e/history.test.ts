import { expect, it } from 'vitest';
import { runHistory } from '../history/run.ts';

it('a random history with kills, frozen parts, a full disk and few descriptors breaks no guarantee', async () => {
  const report = await runHistory({ seed: 20, durationMs: 20_000, clients: 6 });
  expect(report.violations).toEqual([]);
  // The number of faults in that time depends on the machine.
  expect(report.harms).not.toEqual({});
}, 300_000);

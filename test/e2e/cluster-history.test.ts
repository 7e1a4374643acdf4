import { expect, it } from 'vitest';
import { runHistory } from '../history/run.ts';
import { describeWith } from '../probe.ts';

describeWith(['postgres'], 'a random history of three replicas over one PostgreSQL', () => {
  it('a random history breaks no guarantee while replicas and the database are killed, frozen and ended', async () => {
    const report = await runHistory({ seed: 31, durationMs: 25_000, clients: 4, replicas: 3 });
    expect(report.violations).toEqual([]);
    // The number of faults in that time depends on the machine.
    expect(report.harms).not.toEqual({});
  }, 600_000);
});

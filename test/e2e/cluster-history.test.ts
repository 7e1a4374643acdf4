import { expect, it } from 'vitest';
import { runHistory } from '../history/run.ts';
import { describeWith } from '../probe.ts';

describeWith(['postgres'], 'a random history of three replicas over one PostgreSQL', () => {
  it('breaks no promise while replicas are killed, frozen and ended, and the database is', async () => {
    const report = await runHistory({ seed: 31, durationMs: 25_000, clients: 4, replicas: 3 });
    expect(report.violations).toEqual([]);
    // How many there are in that time is up to the machine.
    expect(report.harms).not.toEqual({});
  }, 600_000);
});

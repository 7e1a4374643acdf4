import { run } from '../../scripts/command.ts';
import { TestSupervisord } from '../../test/parts/supervisor.ts';
import { type Bed, type BenchRow, NotHere } from '../bed.ts';
import { atMost, delay, type Measurement, percentile } from '../measure.ts';

const EVENT = { name: 'Ada' };
/** Pause between two creates in milliseconds, equal to the row `create`. */
const PAUSE_MS = 20;
const SUPERVISED = { sandbox_type: 'supervisor' };

/** Measures the time from a create to the first result of an agent that supervisord runs, one at a time. */
export const supervisor: BenchRow = {
  name: 'supervisor',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const version = await run('supervisord', ['--version'], { capture: true }).catch(() => null);
    if (version?.code !== 0) throw new NotHere('supervisord is not installed');
    const supervisord = await TestSupervisord.start();
    try {
      const settings = [`supervisor.url=${supervisord.url}`, `supervisor.includeDir=${supervisord.includeDir}`];
      const rookery = await bed.rookery({ settings });
      const measure = async (pauseMs: number) => {
        const totalMs: number[] = [];
        for (let done = -5; done < (bed.isQuick ? 20 : 100); done += 1) {
          const startedAt = performance.now();
          const id = await rookery.create(undefined, SUPERVISED);
          await rookery.invoke(id, EVENT);
          if (done >= 0) totalMs.push(performance.now() - startedAt);
          await rookery.deleteAll([id]);
          await delay(pauseMs);
        }
        return totalMs;
      };
      const paced = await measure(PAUSE_MS);
      const unpaced = await measure(0);
      bed.raw.supervisor = { paced, unpaced };
      const row = (what: string, value: number): Measurement => ({ what, value, unit: 'ms' });
      const p50 = row('create → first result, supervisor, p50', percentile(paced, 0.5));
      return [
        { ...p50, target: atMost('value', 60) },
        row('create → first result, supervisor, p99', percentile(paced, 0.99)),
        row('create → first result, supervisor, without a pause between creates, p50', percentile(unpaced, 0.5)),
        row('create → first result, supervisor, without a pause between creates, p99', percentile(unpaced, 0.99)),
      ];
    } finally {
      // All agents of this supervisord are deleted. The server removes its prepared workers when the bench
      // ends.
      await supervisord.dispose();
    }
  },
};

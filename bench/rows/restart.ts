import type { Bed, BenchRow } from '../bed.ts';
import { atMost, type Measurement, median } from '../measure.ts';
import { cpuSeconds } from '../processes.ts';
import { Rookery } from '../rookery.ts';

const EVENT = { name: 'Ada' };
/**
 * Start timeout in milliseconds. It is long, because the measurement reports the time even on a busy machine.
 */
const READY_MS = 300_000;

/** Measures the restart after a kill of the service, several times over the same agents. */
export const restart: BenchRow = {
  name: 'restart',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const count = bed.isQuick ? 50 : 500;
    // This row needs a separate server, because a restart would disturb the rows that share one.
    let rookery = await Rookery.start(bed.python, { nodeArgs: bed.nodeArgs, readyMs: READY_MS });
    const rounds: { readyMs: number; allMs: number; cpuMs: number }[] = [];
    try {
      const ids = await rookery.createMany(count);
      for (let round = 0; round < bed.rounds; round++) {
        await rookery.served.end('SIGKILL');
        const startedAt = performance.now();
        rookery = await rookery.again();
        const readyMs = performance.now() - startedAt;
        await Promise.all(ids.map(id => rookery.invoke(id, EVENT)));
        const allMs = performance.now() - startedAt;
        rounds.push({ readyMs, allMs, cpuMs: cpuSeconds([rookery.served.pid]) * 1000 });
      }
      bed.raw.restart = { count, rounds };
      const seconds = (of: (round: (typeof rounds)[number]) => number) => median(rounds.map(of)) / 1000;
      return [
        {
          what: `restart after a kill with ${count} agents, until it is ready`,
          value: seconds(({ readyMs }) => readyMs),
          unit: 's',
          target: atMost('value', 2),
        },
        {
          what: 'the same, until each has answered a call',
          value: seconds(({ allMs }) => allMs),
          unit: 's',
          target: atMost('value', 2),
        },
        { what: 'processor time of the service until then', value: seconds(({ cpuMs }) => cpuMs), unit: 's' },
      ];
    } finally {
      await rookery.remove();
    }
  },
};

import { expect, test } from 'vitest';
import { readStats } from './container-requests.ts';
import type { Engine } from './engine.ts';

const NUMBERS = {
  memory_stats: { usage: 5000 },
  cpu_stats: { cpu_usage: { total_usage: 7000 } },
  pids_stats: { current: 3 },
};

/** A daemon that answers without numbers at first, as it does when it failed to read a control group. */
function engineOf(isRunning: boolean, withoutNumbers: number): Engine {
  let left = withoutNumbers;
  return {
    request: async (what: string) => {
      if (what !== 'tell what a container uses')
        return { State: { Running: isRunning, Status: isRunning ? 'running' : 'exited', ExitCode: 0 } };
      left -= 1;
      return left >= 0 ? { memory_stats: {} } : NUMBERS;
    },
  } as unknown as Engine;
}

test('readStats asks again when the daemon answers without numbers for a running container', async () => {
  expect(await readStats(engineOf(true, 1), 'c')).toEqual({ memoryBytes: 5000, cpuMicros: 7, processes: 3 });
});

test('readStats fails with failed_precondition when a container without numbers does not run', async () => {
  await expect(readStats(engineOf(false, 1), 'c')).rejects.toMatchObject({ code: 'failed_precondition' });
});

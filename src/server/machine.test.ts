import { expect, test, vi } from 'vitest';
import { MachineLoad } from './machine.ts';

test('MachineLoad ignores CPU time that the process used before the measurement began', () => {
  const usage = vi.spyOn(process, 'cpuUsage');
  const clock = vi.spyOn(performance, 'now');
  usage.mockReturnValue({ user: 60_000_000, system: 0 });
  clock.mockReturnValue(1_000);
  const load = new MachineLoad();
  usage.mockReturnValue({ user: 60_050_000, system: 50_000 });
  clock.mockReturnValue(1_200);
  expect(load.levels().service_cpu_millis).toBeCloseTo(500);
  vi.restoreAllMocks();
});

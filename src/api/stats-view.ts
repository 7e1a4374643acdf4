import { Type } from 'typebox';
import type { SandboxStats } from '../sandbox/driver.ts';

/** The resource usage of a sandbox in answers. */
export const STATS = {
  memory_bytes: Type.Integer(),
  cpu_micros: Type.Integer({ description: 'Time on processors since the sandbox started.' }),
  processes: Type.Integer(),
  asleep: Type.Optional(Type.Literal(true, { description: 'Only of a SLEEPING agent, which uses nothing.' })),
};

export const toStatsView = ({ memoryBytes, cpuMicros, processes, isAsleep }: SandboxStats) => ({
  memory_bytes: memoryBytes,
  cpu_micros: cpuMicros,
  processes,
  ...(isAsleep && { asleep: true }),
});

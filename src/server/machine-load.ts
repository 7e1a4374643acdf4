import { cpus, freemem, totalmem } from 'node:os';
import { MEBIBYTE } from '../core/units.ts';

/** CPU time since the start of the machine and of the process. */
interface CpuTimes {
  readonly busyMs: number;
  readonly allMs: number;
  readonly ownMicros: number;
  readonly atMs: number;
}

/**
 * CPU and memory of the machine and of this process. CPU is the average since the last call of `levels`, or
 * since construction.
 */
export class MachineLoad {
  #last = used();

  levels() {
    const now = used();
    const last = this.#last;
    this.#last = now;
    const machine = now.allMs > last.allMs ? (now.busyMs - last.busyMs) / (now.allMs - last.allMs) : 0;
    const own = (now.ownMicros - last.ownMicros) / 1000 / Math.max(1, now.atMs - last.atMs);
    return {
      cpu_millis: machine * cpus().length * 1000,
      service_cpu_millis: own * 1000,
      memory_mb: (totalmem() - freemem()) / MEBIBYTE,
      service_memory_mb: process.memoryUsage.rss() / MEBIBYTE,
    };
  }
}

function used(): CpuTimes {
  const times = cpus().map(cpu => cpu.times);
  const allMs = times.reduce((sum, { user, nice, sys, idle, irq }) => sum + user + nice + sys + idle + irq, 0);
  const idleMs = times.reduce((sum, { idle }) => sum + idle, 0);
  const { user, system } = process.cpuUsage();
  return { busyMs: allMs - idleMs, allMs, ownMicros: user + system, atMs: performance.now() };
}

import { readFile } from 'node:fs/promises';
import { availableParallelism, totalmem } from 'node:os';
import { MEBIBYTE } from '../core/units.ts';
import type { Size } from '../instances/ledger.ts';

/** Most processes that Linux supports (`PID_MAX_LIMIT`). */
const MOST_PROCESSES = 4_194_304;

/**
 * Returns the resources of this machine: processors, memory, and the kernel's limit of processes
 * (`kernel.pid_max`, `kernel.threads-max`).
 */
export async function machineSize(): Promise<Size> {
  const limits = await Promise.all(['pid_max', 'threads-max'].map(kernelLimit));
  return {
    cpuMillis: availableParallelism() * 1000,
    memoryMb: Math.floor(totalmem() / MEBIBYTE),
    processes: Math.min(...limits.filter(limit => limit !== null), MOST_PROCESSES),
  };
}

async function kernelLimit(name: string): Promise<number | null> {
  const text = await readFile(`/proc/sys/kernel/${name}`, 'utf8').catch(() => '');
  const limit = Number.parseInt(text, 10);
  return limit > 0 ? limit : null;
}

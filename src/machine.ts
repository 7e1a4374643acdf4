import { readFile } from 'node:fs/promises';
import { availableParallelism, totalmem } from 'node:os';
import type { Size } from './instances/ledger.ts';

const MEBIBYTE = 1024 * 1024;
/** The most that Linux can have at once (`PID_MAX_LIMIT`). */
const MOST_PROCESSES = 4_194_304;

/** The resources of this machine: processors, memory, and the processes that its kernel allows at once (`kernel.pid_max`, `kernel.threads-max`). */
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

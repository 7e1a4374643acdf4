import { readFile } from 'node:fs/promises';
import { availableParallelism, cpus, freemem, totalmem } from 'node:os';
import { failedPrecondition } from '../core/error.ts';
import { MEBIBYTE } from '../core/units.ts';
import type { Size } from '../instances/ledger.ts';
import { openFilesLimit } from '../lib/open-files-limit.ts';

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

/** Descriptors of the service itself and of a few clients. */
const OWN_FILES = 128;
/** Two connections to the runtime, and one descriptor that reports the exit. */
const FILES_PER_SANDBOX = 3;

/**
 * Fails with `failed_precondition` if the limit of open files is too low to adopt the sandboxes of an earlier
 * server.
 */
export async function checkOpenFiles(sandboxes: number): Promise<void> {
  const limit = await openFilesLimit();
  const needed = OWN_FILES + FILES_PER_SANDBOX * sandboxes;
  if (limit === null || needed <= limit) return;
  throw failedPrecondition(
    `this process may open ${limit} files, and looking after the ${sandboxes} sandboxes of an earlier service takes about ${needed}: raise the limit (ulimit -n, LimitNOFILE= of systemd) and start again; nothing has been touched`,
  );
}

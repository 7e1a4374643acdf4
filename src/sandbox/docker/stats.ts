import { failedPrecondition } from '../../core/error.ts';
import type { SandboxStats } from '../driver.ts';
import { type Engine, statusOf } from './engine.ts';

/** Fields of the daemon's answer that the driver reads. */
interface ContainerStats {
  readonly memory_stats?: {
    readonly usage?: number;
    readonly stats?: { readonly total_inactive_file?: number; readonly inactive_file?: number };
  };
  readonly cpu_stats?: { readonly cpu_usage?: { readonly total_usage?: number } };
  readonly pids_stats?: { readonly current?: number };
}

const NANOS_PER_MICRO = 1000;

/** Returns a container's current resource use. Fails with `failed_precondition` when it does not run. */
export async function readStats(engine: Engine, container: string): Promise<SandboxStats> {
  let stats: ContainerStats;
  try {
    // Without `one-shot` the daemon measures for a second to compute a rate.
    const options = { stream: false as const, 'one-shot': true };
    stats = (await engine.request('tell what a container uses', docker =>
      docker.getContainer(container).stats(options),
    )) as ContainerStats;
  } catch (error) {
    if (statusOf(error) === 404) throw failedPrecondition('the sandbox does not run', { cause: error });
    throw error;
  }
  const usage = stats.memory_stats?.usage;
  if (usage === undefined) throw failedPrecondition('the sandbox does not run');
  const cache = stats.memory_stats?.stats?.total_inactive_file ?? stats.memory_stats?.stats?.inactive_file ?? 0;
  return {
    memoryBytes: Math.max(0, usage - cache),
    cpuMicros: Math.floor((stats.cpu_stats?.cpu_usage?.total_usage ?? 0) / NANOS_PER_MICRO),
    processes: stats.pids_stats?.current ?? 0,
  };
}

import type { Environment } from '../core/environment.ts';
import { findProcesses } from './host/machine-sandboxes.ts';

/**
 * Returns sentences about sandboxes on this machine whose data directories were removed.
 * Never rejects: sandboxes that cannot be seen are left out.
 */
export async function lostSandboxes(dockerHost: string | null, environment: Environment): Promise<readonly string[]> {
  const { findContainers } = await import('./docker/machine-containers.ts');
  const [processes, { containers, close }] = await Promise.all([
    lostProcesses(),
    findContainers(dockerHost, environment),
  ]);
  close();
  return [
    ...processes,
    ...containers
      .filter(({ isLost }) => isLost)
      .map(
        ({ id, instanceId }) =>
          `container ${id.slice(0, 12)} (sandbox ${instanceId}) of a data directory that was removed`,
      ),
  ];
}

/** Returns sentences about processes, without containers, whose data directories were removed. */
export async function lostProcesses(proc?: string): Promise<readonly string[]> {
  const processes = await findProcesses(proc).catch(() => []);
  return processes
    .filter(({ isLost, kind }) => isLost && (kind === 'sandbox' || kind === 'supervised'))
    .map(({ pid, instanceId, dataDir }) => `sandbox ${instanceId} (process ${pid}) of ${dataDir}, which was removed`);
}

import type { Config } from './config/config.ts';
import type { Environment } from './core/environment.ts';
import { failedPrecondition } from './core/error.ts';
import { CLUSTER_SANDBOX_TYPES } from './core/sandbox-types.ts';
import { PoolController } from './pools/controller.ts';
import { countPods } from './pools/counts.ts';
import type { PoolRegistry } from './registry/pools.ts';
import type { Drivers } from './sandbox/drivers.ts';
import type { PoolBackend } from './sandbox/pools.ts';
import type { Logger } from './telemetry/logger.ts';
import type { PodCount } from './telemetry/metrics.ts';

export interface PoolControlOptions {
  readonly config: Config;
  readonly environment: Environment;
  readonly pools: PoolRegistry;
  readonly drivers: Drivers;
  /** Whether this replica acts for all. */
  readonly isHeld: () => boolean;
  readonly logger: Logger;
}

export interface PoolControl {
  /** Never fails: a cluster that is away is tried again. */
  start(): Promise<void>;
  /** Pools were changed by another replica, or `isHeld` is another. */
  look(): void;
  /** For metrics: the pods of each pool, as this replica sees them. */
  counts(): readonly PodCount[];
  close(): Promise<void>;
}

/** Pools as something acts on them; null where no Kubernetes is configured: then they are records, and nothing of a cluster is loaded. */
export function poolControl({
  config,
  environment,
  pools,
  drivers,
  isHeld,
  logger,
}: PoolControlOptions): PoolControl | null {
  if (config.kubernetes.kubeconfig === null && environment.KUBERNETES_SERVICE_HOST === undefined) return null;
  let made: PoolBackend | undefined;
  const backend = async () => {
    const ofClusters = await Promise.all(CLUSTER_SANDBOX_TYPES.map(name => drivers.get(name)));
    const found = ofClusters.find(({ pools }) => pools !== undefined)?.pools;
    if (found === undefined) throw failedPrecondition('this installation has no driver with pools');
    made = found;
    pools.actedOnBy(found);
    // Whether or not this replica acts: creates here take pods of pools, and how long they may take depends on the pools.
    found.open().catch(() => undefined);
    return found;
  };
  const controller = new PoolController({ records: pools, backend, isHeld, log: logger });
  pools.onChange(() => controller.look());
  return {
    async start() {
      // Before the first request: a pool that may not be made is refused then.
      await backend().catch((error: unknown) => logger.warn({ err: error }, 'nothing acts on pools yet'));
      controller.start();
    },
    look: () => controller.look(),
    counts: () => (made === undefined ? [] : countPods(made, Date.now())),
    close: () => controller.close(),
  };
}

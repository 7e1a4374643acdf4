import type { Config } from '../config/config.ts';
import type { Environment } from '../core/environment.ts';
import { failedPrecondition } from '../core/error.ts';
import { CLUSTER_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import { PoolController } from '../pools/controller.ts';
import { countPods } from '../pools/policy.ts';
import type { PoolRegistry } from '../registry/pools.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import { installationImage } from '../sandbox/kubernetes/definition.ts';
import type { PoolBackend } from '../sandbox/pools.ts';
import type { PodCount } from '../telemetry/gauges.ts';
import type { Logger } from '../telemetry/logger.ts';
import { VERSION } from '../version.ts';

export interface PoolControlOptions {
  readonly config: Config;
  readonly environment: Environment;
  readonly pools: PoolRegistry;
  readonly drivers: Drivers;
  /** Returns true if this replica acts for all replicas. */
  readonly isHeld: () => boolean;
  readonly logger: Logger;
}

export interface PoolControl {
  /** Starts the controller. Never fails: an unreachable cluster is retried. */
  start(): Promise<void>;
  /** Starts a pass because another replica changed pools, or the result of `isHeld` changed. */
  startPass(): void;
  /** Returns the pods of each pool as seen by this replica, for metrics. */
  counts(): readonly PodCount[];
  close(): Promise<void>;
}

/** Returns the images that pools may name with authentication on. */
export function allowedPoolImages({ pools, kubernetes }: Config): readonly string[] {
  return pools.images.length > 0 ? pools.images : [installationImage(kubernetes.image, VERSION)];
}

/**
 * Creates the control of pools. Returns null without Kubernetes: pools are then only records, and no
 * Kubernetes code is loaded.
 */
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
    // Opened on every replica: a create takes a pod of a pool, and its time limit depends on the pools.
    found.open().catch(() => undefined);
    return found;
  };
  const controller = new PoolController({ records: pools, backend, isHeld, log: logger });
  pools.onChange(() => controller.requestPass());
  return {
    async start() {
      // Before the first request, so that creates of forbidden pools are refused from the start.
      await backend().catch((error: unknown) =>
        logger.warn({ err: error }, 'kubernetes is not reachable; pools are not managed yet'),
      );
      controller.start();
    },
    startPass: () => controller.requestPass(),
    counts: () => (made === undefined ? [] : countPods(made, Date.now())),
    close: () => controller.close(),
  };
}

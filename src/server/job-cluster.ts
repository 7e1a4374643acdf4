import type { Cluster } from '../cluster/contract.ts';
import type { JobCluster } from '../jobs/cluster.ts';
import { TOPIC_JOBS } from '../storage/queries/jobs.ts';

/**
 * Returns the cluster's interface for jobs. The owner of leases must call `woken` after each join, and when
 * the lease `jobs` is acquired or lost.
 */
export function jobClusterOf(cluster: Cluster): { readonly jobs: JobCluster; woken(): void } {
  const listeners: (() => void)[] = [];
  const woken = () => {
    for (const listener of listeners) listener();
  };
  let epoch = 0;
  return {
    woken,
    jobs: {
      epoch: () => {
        // Without membership the last epoch stays: writes about jobs are checked against their records.
        if (cluster.membership.isMember()) epoch = cluster.membership.fence()?.nodeEpoch ?? 0;
        return epoch;
      },
      isHeld: () => cluster.shards.holds('jobs'),
      fence: () => cluster.shards.fence('jobs'),
      livingNodes: () => new Set(cluster.membership.living().map(({ id }) => id)),
      onChange: listener => {
        listeners.push(listener);
        cluster.feed.subscribe(TOPIC_JOBS, key => {
          if (key === null || key === cluster.nodeId) listener();
        });
      },
    },
  };
}

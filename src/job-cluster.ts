import type { Cluster } from './cluster/contract.ts';
import type { JobCluster } from './jobs/cluster.ts';
import { TOPIC_JOBS } from './storage/jobs.ts';

/**
 * The cluster as jobs see it. `woken` is to be called when the lease `jobs` comes or goes, and after each join; the part that owns leases hears
 * of both.
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
        // Without a place in the cluster it is as it was: what is written about jobs is checked against their rows.
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

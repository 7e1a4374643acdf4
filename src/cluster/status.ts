import { SHARD_NAMES } from '../core/lease.ts';
import type { Cluster, LeaseName } from './contract.ts';

/** Returns `ClusterStatus` of `api/admin/cluster.ts` from memory, without a query to the database. */
export function clusterStatus(cluster: Cluster, storage: 'sqlite' | 'postgres') {
  const { membership, shards, feed, nodeId } = cluster;
  const idOf = (name: LeaseName) => shards.ownerOf(name)?.id ?? null;
  const owners = SHARD_NAMES.map(idOf);
  const named = { jobs: idOf('jobs'), sweeper: idOf('sweeper') };
  return {
    node_id: nodeId,
    storage,
    is_member: membership.isMember(),
    heartbeat_age_ms: Math.max(0, Math.round(membership.heartbeatAgeMs())),
    feed_behind_ms: Math.round(feed.behindMs()),
    shards: { total: SHARD_NAMES.length, owned: owners.filter(id => id !== null).length },
    ...named,
    nodes: membership.living().map(({ id, epoch, advertise, roles, version, joinedAtMs }) => ({
      id,
      epoch,
      address: advertise,
      roles: [...roles],
      version,
      joined_at: new Date(joinedAtMs).toISOString(),
      shards: owners.filter(owner => owner === id).length,
      leases: (['jobs', 'sweeper'] as const).filter(name => named[name] === id),
    })),
  };
}

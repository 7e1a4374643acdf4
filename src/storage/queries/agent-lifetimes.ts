import { HAS_EXPIRY, IS_AGENT } from '../conditions.ts';
import type { Database } from '../database.ts';
import { type StoredInstance, toStored } from './instances.ts';

/** Returns this node's agents that have an end and are neither PAUSED nor being deleted. */
export async function listExpiringAgents(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await database
    .selectFrom('instances')
    .selectAll()
    .where(IS_AGENT)
    .where('node_id', '=', nodeId)
    .where(HAS_EXPIRY)
    .where('status', 'not in', ['PAUSED', 'STOPPING'])
    .execute();
  return rows.map(toStored);
}

export interface NewExpiry {
  readonly ttlMs: number;
  /** Time of the end; 0: none. */
  readonly expiresAtMs: number;
  /** Writes nothing if the agent has a later end, or none. */
  readonly onlyLater: boolean;
}

/**
 * Writes the end of an agent. Returns false and writes nothing if it is being deleted, has another node, was
 * paused or resumed since `agent` was read, or if its present end stays.
 */
export async function setAgentExpiry(
  database: Database,
  agent: Pick<StoredInstance, 'id' | 'nodeId' | 'pausedAtMs' | 'status'>,
  { ttlMs, expiresAtMs, onlyLater }: NewExpiry,
): Promise<boolean> {
  let update = database
    .updateTable('instances')
    .set({ ttl_ms: ttlMs, expires_at_ms: expiresAtMs })
    .where('id', '=', agent.id)
    .where('node_id', '=', agent.nodeId)
    .where('status', '=', agent.status)
    .where('paused_at_ms', '=', agent.pausedAtMs);
  if (onlyLater) update = update.where('expires_at_ms', '>', 0);
  if (onlyLater && expiresAtMs > 0) update = update.where('expires_at_ms', '<', expiresAtMs);
  const { numUpdatedRows } = await update.executeTakeFirstOrThrow();
  return numUpdatedRows > 0n;
}

import type { Selectable } from 'kysely';
import type { InstanceStatus } from '../core/instance.ts';
import type { Database } from './database.ts';
import { type AgentIdentity, type InstanceTable, type StoredInstance, toStored } from './instances.ts';
import { prepare } from './prepared.ts';

/** An instance that is an agent, with the hash of the request that it came of (null without an idempotency key). */
export interface StoredAgent {
  readonly stored: StoredInstance;
  readonly requestHash: string | null;
}

export interface AgentFilter {
  readonly tenant: string;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly status?: InstanceStatus | undefined;
  readonly limit: number;
  /** Only ids after this one. */
  readonly afterId: string | null;
}

const agentsIn = (database: Database) => database.selectFrom('instances').selectAll().where('owner_kind', '=', 'agent');

const ofId = prepare((db, p: { id: string }) => agentsIn(db).where('id', '=', p.id));

export async function findAgent(database: Database, id: string): Promise<StoredAgent | null> {
  const [row] = await ofId(database, { id });
  return toAgent(row);
}

export async function findAgentByName(
  database: Database,
  tenant: string,
  namespace: string,
  name: string,
): Promise<StoredAgent | null> {
  const row = await agentsIn(database)
    .where('tenant', '=', tenant)
    .where('namespace', '=', namespace)
    .where('name', '=', name)
    .executeTakeFirst();
  return toAgent(row);
}

export async function findAgentByIdempotencyKey(
  database: Database,
  tenant: string,
  key: string,
): Promise<StoredAgent | null> {
  const row = await agentsIn(database)
    .where('tenant', '=', tenant)
    .where('idempotency_key', '=', key)
    .executeTakeFirst();
  return toAgent(row);
}

/** Agents of this node whose policies start them again, each at its time. */
export async function listPlannedRestarts(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await agentsIn(database)
    .where('node_id', '=', nodeId)
    .where('status', '=', 'FAILED')
    .where('restart_at_ms', '>', 0)
    .execute();
  return rows.map(toStored);
}

const ofName = prepare((db, p: Pick<InstanceTable, 'tenant' | 'namespace' | 'name'>) =>
  agentsIn(db)
    .clearSelect()
    .select('id')
    .where('tenant', '=', p.tenant)
    .where('namespace', '=', p.namespace)
    .where('name', '=', p.name),
);

const ofKey = prepare((db, p: { tenant: string; key: string }) =>
  agentsIn(db).clearSelect().select('id').where('tenant', '=', p.tenant).where('idempotency_key', '=', p.key),
);

/** Whether an agent has this name or this idempotency key. */
export async function isAgentTaken(
  database: Database,
  tenant: string,
  { namespace, name, idempotency }: AgentIdentity,
): Promise<boolean> {
  if ((await ofName(database, { tenant, namespace, name })).length > 0) return true;
  return idempotency !== undefined && (await ofKey(database, { tenant, key: idempotency.key })).length > 0;
}

/** One page of a tenant's agents, ordered by id. */
export async function listAgents(database: Database, filter: AgentFilter): Promise<StoredInstance[]> {
  let query = agentsIn(database).where('tenant', '=', filter.tenant);
  if (filter.namespace !== undefined) query = query.where('namespace', '=', filter.namespace);
  if (filter.name !== undefined) query = query.where('name', '=', filter.name);
  if (filter.status !== undefined) query = query.where('status', '=', filter.status);
  if (filter.afterId !== null) query = query.where('id', '>', filter.afterId);
  const rows = await query.orderBy('id').limit(filter.limit).execute();
  return rows.map(toStored);
}

/** The names of all agents, whichever node looks after them. */
export async function listAgentNames(
  database: Database,
): Promise<{ id: string; tenant: string; namespace: string; name: string }[]> {
  return await agentsIn(database).clearSelect().select(['id', 'tenant', 'namespace', 'name']).execute();
}

export async function listAgentsOfNode(database: Database, nodeId: string): Promise<StoredInstance[]> {
  return (await agentsIn(database).where('node_id', '=', nodeId).execute()).map(toStored);
}

/** The key may be used for another request; the agent stays. */
export async function forgetIdempotencyKey(database: Database, id: string): Promise<void> {
  await database
    .updateTable('instances')
    .set({ idempotency_key: null, request_hash: null })
    .where('id', '=', id)
    .execute();
}

function toAgent(row: Selectable<InstanceTable> | undefined): StoredAgent | null {
  return row ? { stored: toStored(row), requestHash: row.request_hash } : null;
}

import type { Selectable } from 'kysely';
import type { Alarm } from '../../core/alarm.ts';
import type { InstanceStatus, Labels } from '../../core/instance.ts';
import { chunksOf } from '../../lib/split.ts';
import { alone } from '../alone.ts';
import { HAS_PLANNED_RESTART, IS_AGENT, MAY_HAVE_SANDBOX } from '../conditions.ts';
import type { Database, WriteTransaction } from '../database.ts';
import { prepare } from '../prepared.ts';
import type { InstanceTable } from '../schema.ts';
import type { AgentStateTable } from '../schema-agents.ts';
import { changeAgentAlarms } from './agent-alarms.ts';
import { putAgentState } from './agent-states.ts';
import { publish } from './feed.ts';
import {
  type AgentIdentity,
  type InstancePatch,
  insertInstance,
  MAX_IDS,
  namelessName,
  type OwnedInstanceRef,
  type StoredInstance,
  toStored,
  updateInstance,
} from './instances.ts';
import { hasLabels } from './labels.ts';

/** Feed topic: agents that lost their names to an agent of another node. The key is the agent's id. */
export const TOPIC_AGENTS = 'agents';

export type AgentName = Pick<InstanceTable, 'tenant' | 'namespace' | 'name'>;

/** Result of `takeAgentName`. */
export interface TakenName {
  /** False: the agent is no longer CREATING, and nothing was written. */
  readonly isWritten: boolean;
  /** The agent that held the name; null: the name was free. */
  readonly replaced: { readonly id: string; readonly nodeId: string } | null;
}

/** An instance of an agent, with the hash of the create request (null without an idempotency key). */
export interface StoredAgent {
  readonly stored: StoredInstance;
  readonly requestHash: string | null;
}

export interface AgentFilter {
  readonly tenant: string;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly status?: InstanceStatus | readonly InstanceStatus[] | undefined;
  readonly labels?: Labels | undefined;
  /** null: any template; undefined: with or without. */
  readonly template?: string | readonly string[] | null | undefined;
  readonly startedAfterMs?: number | undefined;
  /** Default: `id`. The others order by the start of the sandbox, then by id. */
  readonly order?: AgentOrder | undefined;
  readonly limit: number;
  /** The last agent of the page before; null: from the first one. The order `id` ignores `startedAtMs`. */
  readonly after: { readonly id: string; readonly startedAtMs: number } | null;
}

export type AgentOrder = 'id' | 'oldest' | 'newest';

const agentsIn = (database: Database) => database.selectFrom('instances').selectAll().where(IS_AGENT);

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

/** Returns this node's FAILED agents that their restart policies will start again. */
export async function listPlannedRestarts(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await agentsIn(database)
    .where('node_id', '=', nodeId)
    .where('status', '=', 'FAILED')
    .where(HAS_PLANNED_RESTART)
    .execute();
  return rows.map(toStored);
}

/** Returns one page of a tenant's agents. */
export async function listAgents(database: Database, filter: AgentFilter): Promise<StoredInstance[]> {
  let query = agentsIn(database).where('tenant', '=', filter.tenant);
  if (filter.namespace !== undefined) query = query.where('namespace', '=', filter.namespace);
  if (filter.name !== undefined) query = query.where('name', '=', filter.name);
  if (filter.status !== undefined) query = query.where('status', 'in', [filter.status].flat());
  if (filter.template === null) query = query.where('template', '<>', '');
  else if (filter.template !== undefined) query = query.where('template', 'in', [filter.template].flat());
  if (filter.startedAfterMs !== undefined) query = query.where('started_at_ms', '>=', filter.startedAfterMs);
  for (const hasLabel of hasLabels(filter.labels ?? {})) query = query.where(hasLabel);
  const rows = await inOrder(query, filter).limit(filter.limit).execute();
  return rows.map(toStored);
}

/** Orders the agents, beginning after the page before. */
function inOrder(query: ReturnType<typeof agentsIn>, { order = 'id', after }: AgentFilter) {
  if (order === 'id') return (after === null ? query : query.where('id', '>', after.id)).orderBy('id');
  const [beyond, direction] = order === 'oldest' ? (['>', 'asc'] as const) : (['<', 'desc'] as const);
  const rest =
    after === null
      ? query
      : query.where(({ and, or, eb }) =>
          or([
            eb('started_at_ms', beyond, after.startedAtMs),
            and([eb('started_at_ms', '=', after.startedAtMs), eb('id', beyond, after.id)]),
          ]),
        );
  return rest.orderBy('started_at_ms', direction).orderBy('id', direction);
}

/** Returns the ids of all agents that have a template. */
export async function listSandboxIds(database: Database): Promise<string[]> {
  const rows = await database
    .selectFrom('instances')
    .select('id')
    .where(IS_AGENT)
    .where('template', '<>', '')
    .execute();
  return rows.map(({ id }) => id);
}

/** Returns a node's agents that may have a sandbox. */
export async function listAgentsWithSandbox(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await agentsIn(database).where('node_id', '=', nodeId).where(MAY_HAVE_SANDBOX).execute();
  return rows.map(toStored);
}

/** Returns which of these ids belong to agents of the node. */
export async function findAgentIds(
  database: Database,
  nodeId: string,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const some of chunksOf(ids, MAX_IDS)) {
    const query = database.selectFrom('instances').select('id').where(IS_AGENT).where('node_id', '=', nodeId);
    for (const { id } of await query.where('id', 'in', some).execute()) found.add(id);
  }
  return found;
}

/** Returns all agents of a node except sleeping ones, including ended ones. */
export async function listAgentsOfNode(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await agentsIn(database).where('node_id', '=', nodeId).where('status', '!=', 'SLEEPING').execute();
  return rows.map(toStored);
}

/**
 * Marks the agent `ref` as RUNNING under `name`. The previous holder becomes STOPPING and loses its name and
 * its idempotency key. Both happen in one transaction, so that exactly one complete agent has the name at
 * every moment.
 */
export async function takeAgentName(
  transaction: WriteTransaction,
  ref: OwnedInstanceRef,
  patch: Omit<InstancePatch, 'status'>,
  { tenant, namespace, name }: AgentName,
): Promise<TakenName> {
  await alone(transaction, JSON.stringify(['agent', tenant, namespace, name]));
  const isWritten = await updateInstance(transaction, ref, ['CREATING'], { ...patch, status: 'RUNNING' });
  if (!isWritten) return { isWritten, replaced: null };
  const [holder] = await agentsIn(transaction)
    .clearSelect()
    .select(['id', 'node_id as nodeId'])
    .where('tenant', '=', tenant)
    .where('namespace', '=', namespace)
    .where('name', '=', name)
    .execute();
  if (holder !== undefined) {
    const none = { name: namelessName(holder.id), idempotency_key: null, request_hash: null };
    await transaction
      .updateTable('instances')
      .set({ ...none, status: 'STOPPING' })
      .where('id', '=', holder.id)
      .execute();
  }
  await transaction.updateTable('instances').set({ name }).where('id', '=', ref.id).execute();
  if (holder !== undefined && holder.nodeId !== ref.nodeId) await publish(transaction, TOPIC_AGENTS, holder.id);
  return { isWritten, replaced: holder ?? null };
}

/**
 * Replaces the stored spec of an agent, whose columns stay as they are. Returns false and writes nothing if
 * the agent has another sandbox or another node by now, or is being created or deleted.
 */
export async function changeAgentSpec(
  transaction: WriteTransaction,
  ref: OwnedInstanceRef,
  spec: string,
): Promise<boolean> {
  return await updateInstance(transaction, ref, CHANGEABLE, { spec });
}

const CHANGEABLE: readonly InstanceStatus[] = ['RUNNING', 'FAILED', 'PAUSED', 'SLEEPING'];

/**
 * Inserts a sleeping agent with its saved state (null: none) and its alarms. Returns false and writes nothing
 * if its name is taken.
 */
export async function insertSleepingAgent(
  transaction: WriteTransaction,
  record: StoredInstance,
  agent: AgentIdentity,
  state: Omit<AgentStateTable, 'agent_id'> | null,
  alarms: readonly Alarm[],
): Promise<boolean> {
  if (!(await insertInstance(transaction, record, agent))) return false;
  const { pausedAtMs, expiresAtMs } = record;
  await updateInstance(transaction, record, ['SLEEPING'], { pausedAtMs, expiresAtMs });
  if (state !== null) await putAgentState(transaction, { ...state, agent_id: record.id });
  await changeAgentAlarms(
    transaction,
    record.id,
    alarms.map(alarm => ({ kind: 'put', alarm })),
  );
  return true;
}

/** Frees the agent's idempotency key for another request. The agent stays. */
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

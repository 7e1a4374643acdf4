import type { Selectable } from 'kysely';
import type { AlarmChange } from '../../core/alarm.ts';
import type { Database, WriteTransaction } from '../database.ts';
import { prepare } from '../prepared.ts';
import type { AgentStateTable } from '../schema-agents.ts';
import { changeAgentAlarms } from './agent-alarms.ts';
import type { OwnedInstanceRef } from './instances.ts';

/** A saved state of a durable agent. */
export interface AgentState extends AgentStateSize {
  /** JSON of the document. */
  readonly state: string;
}

export interface AgentStateSize {
  readonly agentId: string;
  /** Number of saves. */
  readonly version: number;
  readonly schema: number;
  /** In UTF-8. */
  readonly bytes: number;
  readonly savedAtMs: number;
}

const runningOf = prepare((db, p: OwnedInstanceRef) =>
  db
    .selectFrom('instances')
    .select('id')
    .where('id', '=', p.id)
    .where('epoch', '=', p.epoch)
    .where('node_id', '=', p.nodeId)
    .where('status', '=', 'RUNNING'),
);

/** Stores the state of an agent unless a newer one is stored. Returns no row then. */
export const putAgentState = prepare((db, p: AgentStateTable) =>
  db
    .insertInto('agent_states')
    .values({
      agent_id: p.agent_id,
      version: p.version,
      schema: p.schema,
      bytes: p.bytes,
      state: p.state,
      saved_at_ms: p.saved_at_ms,
    })
    .onConflict(conflict =>
      conflict
        .column('agent_id')
        .doUpdateSet(({ ref }) => ({
          version: ref('excluded.version'),
          schema: ref('excluded.schema'),
          bytes: ref('excluded.bytes'),
          state: ref('excluded.state'),
          saved_at_ms: ref('excluded.saved_at_ms'),
        }))
        .whereRef('agent_states.version', '<', 'excluded.version'),
    )
    .returning('agent_id'),
);

/**
 * Saves the state of a running agent and changes its alarms. `row` is null if the state has not changed.
 * Returns false and writes nothing if the agent has another sandbox or another node by now, does not run, or
 * has a newer state. Fails with `failed_precondition` if it would have too many alarms.
 */
export async function saveAgentState(
  transaction: WriteTransaction,
  ref: OwnedInstanceRef,
  row: Omit<AgentStateTable, 'agent_id'> | null,
  alarms: readonly AlarmChange[],
): Promise<boolean> {
  if ((await runningOf(transaction, ref)).length === 0) return false;
  if (row !== null && (await putAgentState(transaction, { ...row, agent_id: ref.id })).length === 0) return false;
  return alarms.length === 0 || (await changeAgentAlarms(transaction, ref.id, alarms));
}

const ofAgent = prepare((db, p: { id: string }) =>
  db.selectFrom('agent_states').selectAll().where('agent_id', '=', p.id),
);

/** Returns the saved state of an agent; null: nothing was saved. */
export async function findAgentState(database: Database, id: string): Promise<AgentState | null> {
  const [row] = await ofAgent(database, { id });
  return row === undefined ? null : { ...toSize(row), state: row.state };
}

/** Returns the versions and sizes of the states of these agents, without those that never saved. */
export async function listAgentStateSizes(database: Database, ids: readonly string[]): Promise<AgentStateSize[]> {
  if (ids.length === 0) return [];
  const rows = await database
    .selectFrom('agent_states')
    .select(['agent_id', 'version', 'schema', 'bytes', 'saved_at_ms'])
    .where('agent_id', 'in', [...ids])
    .execute();
  return rows.map(toSize);
}

function toSize(row: Omit<Selectable<AgentStateTable>, 'state'>): AgentStateSize {
  return {
    agentId: row.agent_id,
    version: Number(row.version),
    schema: Number(row.schema),
    bytes: Number(row.bytes),
    savedAtMs: Number(row.saved_at_ms),
  };
}

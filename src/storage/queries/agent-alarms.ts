import type { Selectable } from 'kysely';
import type { Alarm, AlarmChange, AlarmRule } from '../../core/alarm.ts';
import { failedPrecondition } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { alone } from '../alone.ts';
import { IS_NOT_FAILED } from '../conditions.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { AgentAlarmTable } from '../schema-agents.ts';

/** An alarm with what its delivery needs of its agent. */
export interface DueAlarm {
  readonly agentId: string;
  readonly tenant: string;
  /** `InstanceSpec` as JSON. */
  readonly spec: string;
  readonly alarm: Alarm;
}

/**
 * Changes alarms of an agent, in order. Returns false and changes nothing if the agent does not exist. Fails
 * with `failed_precondition` if it would have too many.
 */
export async function changeAgentAlarms(
  transaction: WriteTransaction,
  agentId: string,
  changes: readonly AlarmChange[],
): Promise<boolean> {
  await alone(transaction, `alarms ${agentId}`);
  const agent = transaction.selectFrom('instances').select('id').where('id', '=', agentId);
  if ((await agent.executeTakeFirst()) === undefined) return false;
  for (const change of changes) await changeAlarm(transaction, agentId, change);
  if (changes.some(({ kind }) => kind === 'put')) await assertNotTooMany(transaction, agentId);
  return true;
}

async function changeAlarm(transaction: WriteTransaction, agentId: string, change: AlarmChange): Promise<void> {
  if (change.kind === 'put') {
    const row = rowOf(change.alarm);
    await transaction
      .insertInto('agent_alarms')
      .values({ agent_id: agentId, ...row })
      .onConflict(conflict => conflict.columns(['agent_id', 'name']).doUpdateSet(row))
      .execute();
    return;
  }
  if (change.kind === 'change') {
    await transaction
      .updateTable('agent_alarms')
      .set(columnsOf(change.to))
      .where('agent_id', '=', agentId)
      .where('name', '=', change.name)
      .where('id', '=', change.id)
      .execute();
    return;
  }
  let drop = transaction.deleteFrom('agent_alarms').where('agent_id', '=', agentId).where('name', '=', change.name);
  if (change.id !== undefined) drop = drop.where('id', '=', change.id);
  await drop.execute();
}

async function assertNotTooMany(transaction: WriteTransaction, agentId: string): Promise<void> {
  const { perAgent } = LIMITS.alarms;
  const { count } = await transaction
    .selectFrom('agent_alarms')
    .select(({ fn }) => fn.countAll().as('count'))
    .where('agent_id', '=', agentId)
    .executeTakeFirstOrThrow();
  if (Number(count) > perAgent) throw failedPrecondition(`an agent has at most ${perAgent} alarms`);
}

/** Returns the alarms of an agent by name. */
export async function listAgentAlarms(database: Database, agentId: string): Promise<Alarm[]> {
  const rows = await database
    .selectFrom('agent_alarms')
    .selectAll()
    .where('agent_id', '=', agentId)
    .orderBy('name')
    .execute();
  return rows.map(toAlarm);
}

/**
 * Returns the next alarms of this node's agents, the earliest first. Those of agents that are paused or being
 * deleted wait.
 */
export async function listNextAlarms(database: Database, nodeId: string, limit: number): Promise<DueAlarm[]> {
  const rows = await database
    .selectFrom('agent_alarms')
    .innerJoin('instances', 'instances.id', 'agent_alarms.agent_id')
    .selectAll('agent_alarms')
    .select(['instances.tenant', 'instances.spec'])
    .where(IS_NOT_FAILED)
    .where('instances.node_id', '=', nodeId)
    .where('instances.status', 'not in', ['PAUSED', 'STOPPING'])
    .orderBy('due_at_ms')
    .limit(limit)
    .execute();
  return rows.map(row => ({ agentId: row.agent_id, tenant: row.tenant, spec: row.spec, alarm: toAlarm(row) }));
}

/** Returns the time of the next delivery of each of these agents that has an alarm. */
export async function listNextAlarmTimes(database: Database, ids: readonly string[]): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const rows = await database
    .selectFrom('agent_alarms')
    .select(({ fn }) => ['agent_id', fn.min('due_at_ms').as('due_at_ms')])
    .where('agent_id', 'in', [...ids])
    .where(IS_NOT_FAILED)
    .groupBy('agent_id')
    .execute();
  return new Map(rows.map(row => [row.agent_id, Number(row.due_at_ms)]));
}

function rowOf(alarm: Alarm): Omit<AgentAlarmTable, 'agent_id'> {
  return columnsOf(alarm) as Omit<AgentAlarmTable, 'agent_id'>;
}

function columnsOf(alarm: Partial<Alarm>): Partial<AgentAlarmTable> {
  const { name, id, rule, payload, scheduledAtMs, dueAtMs, maxLateMs, missed, attempt, hasFailed, lastError } = alarm;
  return {
    ...(name !== undefined && { name }),
    ...(id !== undefined && { id }),
    ...(rule !== undefined && { rule: JSON.stringify(rule) }),
    ...(payload !== undefined && { payload }),
    ...(scheduledAtMs !== undefined && { scheduled_at_ms: scheduledAtMs }),
    ...(dueAtMs !== undefined && { due_at_ms: dueAtMs }),
    ...(maxLateMs !== undefined && { max_late_ms: maxLateMs ?? NO_BOUND }),
    ...(missed !== undefined && { missed }),
    ...(attempt !== undefined && { attempt }),
    ...(hasFailed !== undefined && { failed: hasFailed ? 1 : 0 }),
    ...(lastError !== undefined && { last_error: lastError }),
  };
}

/** `max_late_ms` of an alarm that is delivered however late. */
const NO_BOUND = -1;

function toAlarm(row: Selectable<AgentAlarmTable>): Alarm {
  const maxLateMs = Number(row.max_late_ms);
  return {
    name: row.name,
    id: row.id,
    rule: JSON.parse(row.rule) as AlarmRule,
    payload: row.payload,
    scheduledAtMs: Number(row.scheduled_at_ms),
    dueAtMs: Number(row.due_at_ms),
    maxLateMs: maxLateMs === NO_BOUND ? null : maxLateMs,
    missed: Number(row.missed),
    attempt: Number(row.attempt),
    hasFailed: Number(row.failed) === 1,
    lastError: row.last_error,
  };
}

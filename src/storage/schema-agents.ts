/** Record of `agent_states`: the saved state of a durable agent. No record: nothing was saved. */
export interface AgentStateTable {
  agent_id: string;
  /** Number of saves. */
  version: number;
  /** Shape of the state, by which the user's code knows it. */
  schema: number;
  /** Size of `state` in UTF-8. */
  bytes: number;
  /** JSON of the document. */
  state: string;
  saved_at_ms: number;
}

/** Record of `agent_alarms`: an alarm of a durable agent. See `Alarm` of `core/alarm.ts`. */
export interface AgentAlarmTable {
  agent_id: string;
  name: string;
  id: string;
  /** JSON of `AlarmRule`. */
  rule: string;
  payload: string;
  scheduled_at_ms: number;
  due_at_ms: number;
  /** -1: none. */
  max_late_ms: number;
  missed: number;
  attempt: number;
  /** 1: all attempts have failed. */
  failed: number;
  last_error: string;
}

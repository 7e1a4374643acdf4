import type { FailedAlarm } from '../core/alarm.ts';
import type { CallSink } from '../core/finished-call.ts';
import type { SecretSource } from '../core/secret.ts';
import type { DriverSource } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import type { LayerPlaces } from '../instances/layer.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { PackageDirectories } from './agent-code.ts';
import type { AgentFiles } from './agent-files.ts';
import type { PreviousLogs } from './previous-logs.ts';

/** The parts and settings that `Agents` needs. */
export interface AgentsOptions extends SandboxRules {
  readonly database: Database;
  readonly instances: Instances;
  readonly ledger: Ledger;
  readonly drivers: DriverSource;
  /** Node that starts agents and owns their records. */
  readonly nodeId: string;
  /** Returns true if another node has been lost for too long to return. Absent: there is no other node. */
  readonly isLost?: (nodeId: string) => boolean;
  /** Bound of a start, milliseconds. */
  readonly createTimeoutMs: number;
  /** Source of secret values. Absent: there are no secrets. */
  readonly secrets?: SecretSource;
  /** Logs of earlier sandboxes. Absent: logs are removed with their sandboxes. */
  readonly previousLogs?: PreviousLogs;
  /** Directories of durable agents. Absent: agents have none. */
  readonly files?: AgentFiles;
  /** Counts restarts by policies. */
  readonly restarted?: (outcome: 'restarted' | 'failed') => void;
  /** Counts alarms that were not delivered as planned. */
  readonly alarmMissed?: (outcome: 'failed' | 'skipped' | 'dropped') => void;
  /** The history of calls, for those that alarms make. Absent: it keeps none of them. */
  readonly callSink?: CallSink;
  /** Reports an alarm whose attempts have all failed, or that was dropped. */
  readonly alarmFailed?: (failed: FailedAlarm) => void;
  /** Places of code packages. Absent: there are no code packages. */
  readonly packages?: PackageDirectories;
  /** Places of dependency layers. Absent: dependencies are not installed. */
  readonly layers?: LayerPlaces;
  /**
   * Directory of the platform's Python packages as sandboxes see it. Absent: no program of a template starts.
   */
  readonly programsDir?: string;
  /** Runs durable writes. Absent: each is a transaction of the database. */
  readonly writes?: Pick<DurableWrites, 'write'>;
  readonly log: Log;
  readonly now?: () => number;
  /** Most waiting calls of one agent. */
  readonly maxWaitingCalls: number;
  /** Most agents that have a sandbox. Absent or 0: as many as the machine has capacity for. */
  readonly maxAwake?: number;
  /** Most creates and restarts at the same time. */
  readonly maxStarting: number;
}

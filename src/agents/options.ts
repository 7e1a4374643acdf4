import type { SandboxType } from '../core/instance.ts';
import type { OpenCallBytes } from '../instances/open-call-bytes.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';

/** A driver by its name, the same one each time. Rejects with a `ServiceError` when this installation has none. */
export type DriverSource = (name: SandboxType) => Promise<SandboxDriver>;

export interface SchedulerLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** What the scheduler counts; calls are counted by whoever makes them. */
export interface SchedulerMetrics {
  created(driver: SandboxType, outcome: 'created' | 'failed', durationMs: number): void;
  exited(driver: SandboxType): void;
}

export interface SchedulerOptions {
  readonly database: Database;
  readonly drivers: DriverSource;
  /** Drivers whose left-over sandboxes are looked for even when no instance of theirs is known. */
  readonly sweptDrivers: readonly SandboxType[];
  /** True for sandboxes that somebody beside the agents has a record of (the function service, jobs): they are no orphans. */
  readonly belongsElsewhere?: (instanceId: string) => Promise<boolean>;
  /** Instances are looked after by the node that started them. */
  readonly nodeId: string;
  readonly log: SchedulerLog;
  readonly metrics?: SchedulerMetrics;
  readonly now?: () => number;
  /** Bound of a create and of the start in a restart. */
  readonly createTimeoutMs: number;
  /** Calls of one instance that wait for their turn. */
  readonly maxWaitingCalls: number;
  /** Shared with everybody else who holds bodies of open calls. */
  readonly openCallBytes: OpenCallBytes;
  /** Creates and restarts at the same moment. */
  readonly maxStarting: number;
  /** Processes and threads of one sandbox. */
  readonly maxProcesses: number;
  readonly network: 'host' | 'none';
  readonly requireIsolation: boolean;
  /**
   * How long callers wait for an instance of an earlier server, and how long it may stay silent before it is ended;
   * absent: the usual times.
   */
  readonly adoption?: { readonly answerMs: number; readonly silenceMs: number };
  /** How long a sandbox that belongs to no instance is left alone: somebody may be about to write its row. */
  readonly orphanGraceMs: number;
  /** Between two looks at everything (lost removals, orphans, drivers that were away). */
  readonly reconcileIntervalMs: number;
}

import type { OwnerKind, SandboxType } from '../core/instance.ts';
import type { Lease } from '../core/lease.ts';
import type { Log } from '../lib/log.ts';
import type { Channel } from '../runtime/channel.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { InstancePatch, InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { CallLimiter } from './call-limiter.ts';
import type { NotifyChange } from './changes.ts';
import type { LiveInstance } from './live-instance.ts';
import type { AgentSaver } from './live-options.ts';
import type { InstanceRecord } from './rows.ts';
import type { SilenceTimes } from './silence-times.ts';

/**
 * Returns the driver of a name, the same object each time. Rejects with a `ServiceError` if none is
 * installed.
 */
export type DriverSource = (name: SandboxType) => Promise<SandboxDriver>;

/** Counts of starts and ends. The callers of instances count calls. */
export interface InstanceMetrics {
  created(driver: SandboxType, outcome: 'created' | 'failed', durationMs: number): void;
  exited(driver: SandboxType): void;
}

/** Columns that an owner may write with the end of an instance; absent members keep their values. */
export type ExitPatch = Pick<InstancePatch, 'statusReason' | 'restartsInRow' | 'restartAtMs'>;

/** Owns all instances of a kind and is notified when they change. The methods do not throw. */
export interface InstanceOwner {
  /** Limits the calls of the owner's instances. */
  readonly limiter: CallLimiter;
  /**
   * Returns what saves the state of a durable instance; undefined: the instance has none. `version`: number
   * of saves so far.
   */
  saver?(instance: Pick<StoredInstance, 'id' | 'epoch' | 'tenant' | 'spec'>, version: number): AgentSaver | undefined;
  /** Returns true if the runtime of a recovered instance has the saved state. Absent: it has. */
  agrees?(instance: InstanceRecord, hello: Channel['hello']): Promise<boolean>;
  /** Called when an adopted instance answers: at the start, or later if the instance was slow. */
  adopted?(live: LiveInstance, record: InstanceRecord): void;
  /**
   * Called when a sandbox ended by itself, was found dead, was given up, or was removed by a reconciler pass.
   * `reason` is a sentence. By now the instance may have another sandbox with a later epoch.
   */
  ended?(sandbox: InstanceRef, reason: string): void;
  /**
   * Returns extra columns to write when a recorded instance ends by itself, in the same write as its end. A
   * service that dies later then loses none of it. Called again if the write failed. `exitCode` is null if
   * the sandbox has no exit code or the code is unknown.
   */
  exiting?(instance: InstanceRecord, reason: string, exitCode: number | null): ExitPatch;
  /** Called once after `ended`, for an instance that ended by itself. */
  exited?(sandbox: InstanceRef): void;
  /**
   * Called after each reconciler pass. Records may belong to this node now, or be FAILED, without a
   * notification. If the call rejects, the pass is repeated.
   */
  reconciled?(): Promise<void>;
}

/**
 * The one policy for instances that are found after a restart or end by themselves. All differences between
 * owners are in this table:
 *
 * - The service connects to an instance that takes calls. If the instance is silent for half a minute, it is
 * ended.
 * - A first start that was interrupted is undone: no client received its id. The exception is a record with a
 * sandbox whose runtime is ready. A later interrupted start leaves the instance FAILED.
 * - An instance that was being ended is ended.
 */
export const OWNER_RULES: Readonly<Record<OwnerKind, OwnerRules>> = {
  agent: { keepsEnded: true, recovers: false },
  function: { keepsEnded: false, recovers: false },
  job: { keepsEnded: true, recovers: true },
  build: { keepsEnded: false, recovers: false },
};

export interface OwnerRules {
  /**
   * Keeps an instance that ended by itself, FAILED and with its logs, until its owner ends it. Otherwise it
   * is removed at once.
   */
  readonly keepsEnded: boolean;
  /**
   * Leaves an instance alone after a restart until its owner calls `Commands.recover`: a command must not
   * start twice.
   */
  readonly recovers: boolean;
}

export interface InstancesOptions {
  readonly drivers: DriverSource;
  /** Drivers whose orphaned sandboxes are searched for even if no instance of the driver is known. */
  readonly sweptDrivers: readonly SandboxType[];
  /**
   * Drivers whose sandboxes start while their records are inserted, because such a start is quick and easy to
   * undo. At the start of a server, such a sandbox without a record was being started by the server before.
   */
  readonly cheapDrivers: readonly SandboxType[];
  /** Node that starts instances and owns their records. */
  readonly nodeId: string;
  /** Returns true if another node has been lost for too long to return. Absent: there is no other node. */
  readonly isLost?: (nodeId: string) => boolean;
  /**
   * Writes the record of an instance in one transaction, if the lease is still held. Absent: leases never
   * expire.
   */
  readonly insertUnder?: (lease: Lease, instance: StoredInstance) => Promise<unknown>;
  /** Runs write operations. Absent: each is a transaction of the database. */
  readonly writes?: Pick<DurableWrites, 'write'>;
  readonly log: Log;
  readonly metrics?: InstanceMetrics;
  /**
   * Notified of every change of an agent or a function's instance after it is written. Must not throw.
   * Absent: no notifications.
   */
  readonly changed?: NotifyChange;
  readonly now?: () => number;
  /** Bound of a start, milliseconds. */
  readonly createTimeoutMs: number;
  /**
   * Bounds of an adoption. `answerMs`: how long callers wait for an adopted instance. `silenceMs`: how long
   * the instance may stay silent before it is ended. Absent: the default times.
   */
  readonly adoption?: { readonly answerMs: number; readonly silenceMs: number };
  /** Default: `SILENCE_TIMES`. */
  readonly silence?: SilenceTimes;
  /**
   * Time for which a sandbox without an instance is kept, because another service may be about to find its
   * record.
   */
  readonly orphanGraceMs: number;
  /**
   * Interval between reconciler passes, which handle failed removals, orphans and drivers that did not
   * answer.
   */
  readonly reconcileIntervalMs: number;
}

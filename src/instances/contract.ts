import type { OwnerKind, SandboxType } from '../core/instance.ts';
import type { Lease } from '../core/lease.ts';
import type { CpuLatency } from '../lib/cpu-latency.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { InstancePatch, InstanceRef, StoredInstance } from '../storage/instances.ts';
import type { CallLimiter } from './call-limiter.ts';
import type { TellChange } from './changes.ts';
import type { LiveInstance } from './live-instance.ts';
import type { InstanceRecord } from './rows.ts';

/** A driver by its name, the same one each time. Rejects with a `ServiceError` when this installation has none. */
export type DriverSource = (name: SandboxType) => Promise<SandboxDriver>;

export interface InstanceLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Counts of starts and ends; calls are counted by whoever makes them. */
export interface InstanceMetrics {
  created(driver: SandboxType, outcome: 'created' | 'failed', durationMs: number): void;
  exited(driver: SandboxType): void;
}

/** What an owner may have written with the end of an instance; absent members stay as they are. */
export type ExitPatch = Pick<InstancePatch, 'statusReason' | 'restartsInRow' | 'restartAtMs'>;

/** Asks for instances of one kind and hears of their fate. Its methods do not throw. */
export interface InstanceOwner {
  /** Bounds of the calls of its instances. */
  readonly limiter: CallLimiter;
  /** One of an earlier server runs and answers: found at the start, or later when it was slow to answer. */
  adopted?(live: LiveInstance, record: InstanceRecord): void;
  /**
   * A sandbox ended by itself, was found dead, was given up, or was removed by a look at everything; `reason` is a sentence. Perhaps its instance
   * has another one by now, with a later epoch.
   */
  ended?(sandbox: InstanceRef, reason: string): void;
  /**
   * What else is written with it that one that stays on record ended by itself, for `reason`: in the same write, so that none of it is lost when
   * the service dies after that. Asked again when the write failed. `exitCode` null: it has none, or nobody knows it.
   */
  exiting?(instance: InstanceRecord, reason: string, exitCode: number | null): ExitPatch;
  /** After `ended`, once, of one that ended by itself. */
  exited?(sandbox: InstanceRef): void;
  /** After each look at everything: rows may be this node's, or FAILED, that nobody has told of. When it rejects, the look is repeated. */
  looked?(): Promise<void>;
}

/**
 * The one policy for what is found after a restart and for what ends by itself. All differences between owners are here, and nowhere else:
 *
 * - An instance that takes calls is connected to. One that is silent is waited for, half a minute at most; then it is ended.
 * - A first start that was cut off is undone: nobody learned of it, unless its row has a sandbox whose runtime is ready. A later one leaves the
 *   instance FAILED.
 * - One that was being ended is ended.
 */
export const OWNER_RULES: Readonly<Record<OwnerKind, OwnerRules>> = {
  agent: { keepsEnded: true, recovers: false },
  function: { keepsEnded: false, recovers: false },
  job: { keepsEnded: true, recovers: true },
  build: { keepsEnded: false, recovers: false },
};

export interface OwnerRules {
  /** One that ended by itself stays, FAILED and with its logs, until its owner ends it. Otherwise it goes at once. */
  readonly keepsEnded: boolean;
  /** It may not begin twice: after a restart its owner asks for it (`Instances.recover`), and until then it is left alone. */
  readonly recovers: boolean;
}

export interface InstancesOptions {
  readonly drivers: DriverSource;
  /** Drivers whose left-over sandboxes are looked for even when no instance of theirs is known. */
  readonly sweptDrivers: readonly SandboxType[];
  /**
   * Drivers whose sandboxes may start before their rows are written: nobody else writes rows. What such a driver has without a row when a server
   * starts, was being made by the one before. Absent: there are none.
   */
  readonly rowsFollow?: readonly SandboxType[] | undefined;
  /** Instances are looked after by the node that started them. */
  readonly nodeId: string;
  /** Whether another node is lost for so long that nobody waits for it. Absent: there is no other node. */
  readonly isLost?: (nodeId: string) => boolean;
  /** Writes the row of an instance if the lease is still held, in one transaction. Absent: leases are held for good. */
  readonly insertUnder?: (lease: Lease, instance: StoredInstance) => Promise<unknown>;
  readonly log: InstanceLog;
  readonly metrics?: InstanceMetrics;
  /** Absent, null: processors sleep as they like. */
  readonly cpuLatency?: Pick<CpuLatency, 'lower'> | null;
  /** Hears of every change of an agent or an instance of a function, once it is written. It does not throw. Absent: nobody does. */
  readonly changed?: TellChange;
  readonly now?: () => number;
  /** Bound of a start. */
  readonly createTimeoutMs: number;
  /**
   * How long callers wait for an instance of an earlier server, and how long it may stay silent before it is ended;
   * absent: the usual times.
   */
  readonly adoption?: { readonly answerMs: number; readonly silenceMs: number };
  /** How long a sandbox that belongs to no instance is left alone: another service may be about to find its row. */
  readonly orphanGraceMs: number;
  /** Between two looks at everything (lost removals, orphans, drivers that were away). */
  readonly reconcileIntervalMs: number;
}

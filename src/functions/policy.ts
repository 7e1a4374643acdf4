import type { CallSignal } from '../lib/call-signal.ts';
import { afterMs } from '../lib/deadline.ts';

/** Scaling rules of a function version, from its registered metadata and its reservations. */
export interface ScalingPolicy {
  /** Concurrent calls per instance, 1 to 1000 (`concurrentNum`). */
  readonly concurrency: number;
  /** Instances that are kept warm in the group of the function's own resources without a label. */
  readonly minInstances: number;
  /** Maximum number of instances over all groups without a label. */
  readonly maxInstances: number;
  /** Time that an instance above the minimum may idle, milliseconds. */
  readonly scaleDownMs: number;
  /**
   * Wait after which a call gets an instance started, milliseconds. Null: at once. Shorter waits start none
   * while an instance is ready or starting.
   */
  readonly slaQuotaMs: number | null;
  /** Maximum number of waiting calls (`burstScaleNum`). */
  readonly maxWaiting: number;
  /** True if an instance ends after one call. */
  readonly oneshot: boolean;
  /** Reserved instances: label → its own bounds. */
  readonly labels: ReadonlyMap<string, { readonly min: number; readonly max: number }>;
}

/** Key of a group: calls with equal keys share instances, other calls never do. */
export interface GroupKey {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** Canonical JSON of the custom resources, `''` when none. */
  readonly customResources: string;
  /** `X-Instance-Label`, `''` when none. */
  readonly label: string;
  /** `X-Session-Context`, `''` when none. */
  readonly sessionContext: string;
  /** `X-Pool-Label` where pools exist; absent when the call named none. */
  readonly poolLabels?: readonly string[];
}

/** Returns the text that identifies a group of instances. */
export function formatGroupKey(key: GroupKey): string {
  const { cpuMillis, memoryMb, customResources, label, sessionContext, poolLabels } = key;
  return JSON.stringify([cpuMillis, memoryMb, customResources, label, sessionContext, ...(poolLabels ?? [])]);
}

/** Demands of a call on its slot. */
export interface SessionRequest {
  /** 1 to 63 characters. */
  readonly id: string;
  /** Slots of an instance that are kept for the session; −1: the whole instance. */
  readonly concurrency: number;
  /** Time that the slots are kept after the session's last call, milliseconds. */
  readonly ttlMs: number;
}

export interface AcquireOptions {
  readonly session?: SessionRequest | undefined;
  readonly signal?: CallSignal | undefined;
  /** Longest time that the call may wait for a slot, milliseconds. */
  readonly maxWaitMs: number;
}

/** Time of scalers and calls. Tests replace it. */
export interface Clock {
  now(): number;
  /** Calls `fire` once after `ms`. The returned function cancels it. */
  after(ms: number, fire: () => void): () => void;
}

export const SYSTEM_CLOCK: Clock = {
  now: () => performance.now(),
  after: afterMs,
};

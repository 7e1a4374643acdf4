import { afterLazily } from '../lib/lazy-timer.ts';
import { afterMs, MAX_TIMER_MS } from '../lib/long-timer.ts';

/** How the instances of one function version are scaled; from its registered metadata and its reservations. */
export interface ServicePolicy {
  /** Calls at once per instance, 1 to 1000 (`concurrentNum`). */
  readonly concurrency: number;
  /** Kept warm in the group of the function's own resources without a label. */
  readonly minInstances: number;
  /** Never passed, counted over all groups without a label. */
  readonly maxInstances: number;
  /** How long an instance above the minimum may idle, milliseconds. */
  readonly scaleDownMs: number;
  /** Null: start for waiting calls at once. Else only for calls that have waited, or would wait, that long. */
  readonly slaQuotaMs: number | null;
  /** How many calls may wait (`burstScaleNum`). */
  readonly maxWaiting: number;
  /** An instance serves one call and ends. */
  readonly oneshot: boolean;
  /** Reserved instances: label → its own bounds. */
  readonly labels: ReadonlyMap<string, { readonly min: number; readonly max: number }>;
}

/** The key under which instances of one version are interchangeable: calls with the same key share instances, others never do. */
export interface GroupKey {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** Canonical JSON of the custom resources, `''` when none. */
  readonly customResources: string;
  /** `X-Instance-Label`, `''` when none. */
  readonly label: string;
  /** `X-Session-Context`, `''` when none. */
  readonly sessionContext: string;
  /** `X-Pool-Label` where there are pools; absent when none were asked for. */
  readonly poolLabels?: readonly string[];
}

export function formatGroupKey(key: GroupKey): string {
  const { cpuMillis, memoryMb, customResources, label, sessionContext, poolLabels } = key;
  return JSON.stringify([cpuMillis, memoryMb, customResources, label, sessionContext, ...(poolLabels ?? [])]);
}

/** A call's demands on its slot. */
export interface SessionRequest {
  /** 1 to 63 characters. */
  readonly id: string;
  /** Slots of one instance that are kept for the session; −1 = the whole instance. */
  readonly concurrency: number;
  /** How long they are kept after its last call, milliseconds. */
  readonly ttlMs: number;
}

/** Time as the service sees it, so that a model test can turn it by hand. */
export interface ServiceClock {
  now(): number;
  /** Calls `fire` once after `ms`; the returned function calls it off. */
  after(ms: number, fire: () => void): () => void;
}

export const SYSTEM_CLOCK: ServiceClock = {
  now: () => performance.now(),
  after: (ms, fire) => (ms < MAX_TIMER_MS ? afterBriefly(ms, fire) : afterMs(ms, fire)),
};

/** What is called off is let go of at once, whoever still has the timer: a call that waited leads to its request and its answer. */
function afterBriefly(ms: number, fire: () => void): () => void {
  let due: (() => void) | undefined = fire;
  const cancel = afterLazily(ms, () => due?.());
  return () => {
    due = undefined;
    cancel();
  };
}

import type { Lease } from '../core/lease.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogRequest, SandboxStats } from '../sandbox/driver.ts';
import type { ServedFunction } from './catalog.ts';
import type { GroupKey } from './policy.ts';
import type { ServiceInstance } from './replica.ts';

/** How long the stages of a start took, milliseconds. */
export interface StartTimings {
  readonly startMs: number;
  readonly loadMs: number;
}

/** A running instance of a function version that takes calls. */
export interface ServingInstance extends ServiceInstance {
  readonly urn: string;
  readonly revisionId: string;
  readonly key: GroupKey;
  readonly startedAtMs: number;
  readonly timings: StartTimings;
  /** False from the moment its connection broke: calls go elsewhere while the reason is found out. */
  readonly isConnected: boolean;
  /** As `LiveInstance.call`. */
  call(call: Call): Promise<CallOutcome>;
  credit(callId: number, bytes: number): void;
  /** Lines of the user's code, as `SandboxDriver.logs`. */
  logs(request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer>;
  /** What its sandbox uses now, as `SandboxDriver.stats`. */
  stats?(): Promise<SandboxStats>;
  /** Ways into its sandbox; undefined when its driver has none. */
  access?(): SandboxAccess | undefined;
}

/** Starts and finds service instances; as `Instances` does it for the function service. */
export interface InstanceStarter {
  /**
   * Starts an instance under the lease of its function's shard: a replica that has lost it starts none. Fails with `CodeFailure` when the
   * code cannot be loaded, `ServiceError` otherwise; nothing is left then.
   */
  launch(fn: ServedFunction, key: GroupKey, lease: Lease): Promise<ServingInstance>;
  /** Those of an earlier server that still run and can be reached; whatever else is left of them is removed. */
  adopt(onLate: (instance: ServingInstance) => void): Promise<readonly ServingInstance[]>;
  /** Lets go of an instance without ending it. */
  close(): Promise<void>;
}

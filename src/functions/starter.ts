import type { Lease } from '../core/lease.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogRequest, SandboxStats } from '../sandbox/driver.ts';
import type { ServedFunction } from './catalog.ts';
import type { GroupKey } from './policy.ts';
import type { ServiceInstance } from './replica.ts';

/** Durations of the stages of a start, milliseconds. */
export interface StartTimings {
  readonly startMs: number;
  readonly loadMs: number;
}

/** Running instance of a function version that takes calls. */
export interface ServingInstance extends ServiceInstance {
  readonly urn: string;
  readonly revisionId: string;
  readonly key: GroupKey;
  readonly startedAtMs: number;
  readonly timings: StartTimings;
  /** False from the moment its connection broke. Calls go to other instances until the reason is known. */
  readonly isConnected: boolean;
  /** Runs a call, like `LiveInstance.call`. */
  call(call: Call): Promise<CallOutcome>;
  credit(callId: number, bytes: number): void;
  /** Returns the output of the user's code, like `SandboxDriver.logs`. */
  logs(request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer>;
  /** Returns the current resource usage of its sandbox, like `SandboxDriver.stats`. */
  stats?(): Promise<SandboxStats>;
  /** Returns the access to its sandbox; undefined when its driver has none. */
  access?(): SandboxAccess | undefined;
}

/** Starts and adopts the instances of the function service. */
export interface InstanceStarter {
  /**
   * Starts an instance under the lease of its function's shard. A replica that has lost the lease starts
   * none. Fails with `CodeFailure` when the code cannot be loaded, otherwise with a `ServiceError`. A failed
   * start leaves no residue.
   */
  launch(fn: ServedFunction, key: GroupKey, lease: Lease): Promise<ServingInstance>;
  /**
   * Returns the instances of an earlier server that still run and can be reached. `onLate` gets those that
   * become reachable later. Removes code that no instance uses.
   */
  adopt(onLate: (instance: ServingInstance) => void): Promise<readonly ServingInstance[]>;
  /** Detaches from all instances without ending them. */
  close(): Promise<void>;
}

import type { Lease } from '../core/lease.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { CallError } from '../runtime/protocol.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogChunks, LogRequest, SandboxStats } from '../sandbox/driver.ts';
import type { FunctionDefinition } from './catalog.ts';
import type { GroupKey } from './policy.ts';

/** Durations of the stages of a start, milliseconds. */
export interface StartTimings {
  readonly startMs: number;
  readonly loadMs: number;
}

/** Running instance of a function version that takes calls. */
export interface FunctionInstance {
  readonly id: string;
  readonly urn: string;
  readonly revisionId: string;
  readonly key: GroupKey;
  readonly startedAtMs: number;
  readonly timings: StartTimings;
  /** False from the moment its connection broke. Calls go to other instances until the reason is known. */
  readonly isConnected: boolean;
  /** Resolves with the reason, a sentence, when the instance ends for any cause, including `stop`. */
  readonly ended: Promise<string>;
  /** Runs a call, like `LiveInstance.call`. */
  call(call: Call): Promise<CallOutcome>;
  credit(callId: number, bytes: number): void;
  /** Returns the output of the user's code, like `SandboxDriver.logs`. */
  logs(request: LogRequest, signal: AbortSignal): LogChunks;
  /** Returns the current resource usage of its sandbox, like `SandboxDriver.stats`. */
  stats?(): Promise<SandboxStats>;
  /** Returns the access to its sandbox; undefined when its driver has none. */
  access?(): SandboxAccess | undefined;
  /**
   * Runs pre_stop, then ends and removes the instance. With `isStuck` the instance gets little time, because
   * a handler that should have ended may never end. Never rejects.
   */
  stop(isStuck?: boolean): Promise<void>;
}

/** Starts and adopts instances of function versions. */
export interface InstanceLauncher {
  /**
   * Starts an instance under the lease of its function's shard. A replica that has lost the lease starts
   * none. Fails with `CodeFailure` when the code cannot be loaded, otherwise with a `ServiceError`. A failed
   * start leaves no residue.
   */
  launch(fn: FunctionDefinition, key: GroupKey, lease: Lease): Promise<FunctionInstance>;
  /**
   * Returns the instances of an earlier server that still run and can be reached. `onLate` gets those that
   * become reachable later. Removes code that no instance uses.
   */
  adopt(onLate: (instance: FunctionInstance) => void): Promise<readonly FunctionInstance[]>;
  /** Detaches from all instances without ending them. */
  close(): Promise<void>;
}

/**
 * Error of user code that could not be loaded or initialized. Each call that waited for the code gets it as
 * its outcome.
 */
export class CodeFailure extends Error {
  override readonly name = 'CodeFailure';
  readonly error: CallError;

  constructor(error: CallError) {
    super(error.message);
    this.error = error;
  }
}

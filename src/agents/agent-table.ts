import type { HttpProfileName } from '../core/http-profiles.ts';
import type { Instance } from '../core/instance.ts';
import type { Size } from '../instances/ledger.ts';
import type { InstanceRef } from '../storage/queries/instances.ts';

/** Long operation that changes an instance as a whole. */
export interface Operation {
  readonly kind: 'create' | 'restart' | 'pause' | 'resume' | 'sleep' | 'update' | 'delete';
  readonly abort: AbortController;
  /** Resulting instance; undefined after a delete. */
  readonly done: Promise<Instance | undefined>;
}

/** Use of an agent with an idle time, in this process. */
export interface AgentUse {
  readonly idleMs: number;
  /** Contract of its server; undefined: `http`. */
  readonly profile: HttpProfileName | undefined;
  /** Number of open commands, streams and other accesses. */
  open: number;
  /** `performance.now()` at the last known use. */
  usedMs: number;
  /** Calls that had begun at the last check. */
  calls: number;
  /** True if work of its processes between calls is use too. */
  readonly countsWork: boolean;
  /** Processor time at an earlier check without use; undefined: none was read since the last use. */
  work: { readonly atMs: number; readonly cpuMicros: number } | undefined;
  cancel: () => void;
}

/** Starts of a durable agent that have failed since the last success. */
export interface FailedWakes {
  readonly count: number;
  readonly reason: string;
  /** `performance.now()` from which a use may start the agent again. */
  readonly retryAtMs: number;
}

/** Sandboxes of a durable agent that ended soon after their start, without a successful call in between. */
export interface QuickEnds {
  /** Epoch of the last one. */
  readonly epoch: number;
  readonly count: number;
}

/** State of one agent in this process, in addition to its runner. */
export interface AgentState {
  /** Running operation. */
  operation?: Operation | undefined;
  /** Sandbox that has a reservation in the ledger, with its size. */
  reservation?: (InstanceRef & Pick<Size, 'cpuMillis' | 'memoryMb'>) | undefined;
  /** Epochs of the sandboxes that use or will use code. */
  codeEpochs?: readonly number[] | undefined;
  /** Cancels the pending restart by the restart policy. */
  cancelRestart?: (() => void) | undefined;
  /** Timer for the end of its time to live. */
  expiry?: { readonly atMs: number; readonly cancel: () => void } | undefined;
  /** Use of an agent that has an idle time. */
  use?: AgentUse | undefined;
  /** Starts in a row by uses of the agent that have failed. */
  failedWakes?: FailedWakes | undefined;
  quickEnds?: QuickEnds | undefined;
  /** True while a change of its settings takes effect: new calls wait. */
  isApplying?: true | undefined;
  /** True during a restart by the policy, until the consequence of a failure is written. */
  isRestarting?: true | undefined;
}

/** States of agents, by id. An agent without state takes no memory. */
export class AgentTable {
  readonly #states = new Map<string, AgentState>();

  get(id: string): AgentState | undefined {
    return this.#states.get(id);
  }

  /** Changes members of the state of an agent; undefined removes a member. */
  set(id: string, changes: AgentState): void {
    const state = { ...this.#states.get(id), ...changes };
    if (Object.values(state).some(value => value !== undefined)) this.#states.set(id, state);
    else this.#states.delete(id);
  }

  entries(): readonly (readonly [string, AgentState])[] {
    return [...this.#states];
  }
}

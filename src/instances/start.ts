import type { ServerTiming } from '../lib/server-timing.ts';
import type { CallError, Init } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxSpec } from '../sandbox/driver.ts';
import type { AgentName, TakenName } from '../storage/queries/agents.ts';

/** Everything that `Instances.launch` needs to start an instance. */
export interface Start {
  readonly driver: SandboxDriver;
  readonly sandbox: SandboxSpec;
  readonly init: Init;
  /** Returns the message of a refusal with what the runtime would have started. */
  readonly explain: (message: string) => string;
  /** Measures the steps of the start. */
  readonly stages?: ServerTiming;
  /**
   * Inserts the record while the sandbox starts. False: the name or the idempotency key is taken; the start is
   * undone then. Absent: the record was inserted before.
   */
  readonly insert?: () => Promise<boolean>;
  /** Checks the result of loading the code before the instance takes calls. If it throws, the start fails. */
  readonly accept?: (loadFailure: CallError | null) => void;
  /** Name that the RUNNING write takes from another agent; `replaced` is called with that agent. */
  readonly takesName?: { readonly name: AgentName; readonly replaced: (agent: ReplacedAgent) => void };
}

/** Agent whose name another agent has taken. The agent is STOPPING, and its sandbox must still be ended. */
export type ReplacedAgent = NonNullable<TakenName['replaced']>;

import type { SandboxFacts } from '../core/instance.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import type { CallError, Init } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxHandle, SandboxSpec, StartedSandbox } from '../sandbox/driver.ts';
import type { AgentName, TakenName } from '../storage/queries/agents.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';

/** Everything that `Instances.launch` needs to start an instance. */
export interface Start {
  readonly driver: SandboxDriver;
  readonly sandbox: SandboxSpec;
  readonly init: Init;
  /** Returns the message of a refusal with the program that the runtime would have started. */
  readonly explain: (message: string) => string;
  /** Measures the steps of the start. */
  readonly stages?: ServerTiming;
  /**
   * Inserts the record while the sandbox starts. False: the name or the idempotency key is taken; the start
   * is undone then. Absent: the record was inserted before.
   */
  readonly insert?: () => Promise<boolean>;
  /** Checks the result of loading the code before the instance takes calls. If it throws, the start fails. */
  readonly accept?: (loadFailure: CallError | null) => void;
  /**
   * Completes a sandbox that has started, before the instance takes calls. If it rejects, the start fails and
   * the sandbox is removed.
   */
  readonly furnish?: (handle: SandboxHandle, signal: AbortSignal) => Promise<void>;
  /** Name that the RUNNING write takes from another agent; `replaced` is called with that agent. */
  readonly takesName?: { readonly name: AgentName; readonly replaced: (agent: ReplacedAgent) => void };
}

/** Agent whose name another agent has taken. The agent is STOPPING, and its sandbox must still be ended. */
export type ReplacedAgent = NonNullable<TakenName['replaced']>;

/** Columns about a sandbox that has started. */
export type StartedFacts = Pick<
  StoredInstance,
  'statusReason' | 'loadError' | 'startedAtMs' | 'expiresAtMs' | 'sandbox'
>;

/**
 * Returns the columns. `loadError`: why the code was not loaded; `''` if it was. The time to live begins with
 * the first start.
 */
export function factsOf(
  { facts }: StartedSandbox,
  loadError: string,
  startedAtMs: number,
  { epoch, ttlMs, expiresAtMs: endMs }: Pick<StoredInstance, 'epoch' | 'ttlMs' | 'expiresAtMs'>,
): StartedFacts {
  const expiresAtMs = epoch === 1 && ttlMs > 0 ? startedAtMs + ttlMs : endMs;
  return { statusReason: '', loadError, startedAtMs, expiresAtMs, sandbox: facts };
}

/** Returns the columns of a sandbox that has started. */
export function rowOf(facts: { readonly sandbox: SandboxFacts } & object, { handle }: StartedSandbox, secret: string) {
  return { ...facts, handle: JSON.stringify(handle), secret };
}

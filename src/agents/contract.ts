import type { Alarm } from '../core/alarm.ts';
import type { ServiceError } from '../core/error.ts';
import type { Instance, InstanceSpec, InstanceStatus, Labels } from '../core/instance.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { WakeReason } from '../runtime/protocol.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { ExecRequest, ExecResult, LogChunks, LogRequest, SandboxStats } from '../sandbox/driver.ts';

/**
 * Operations on agent instances, for the HTTP entries. A method with a tenant treats another tenant's
 * instance like a missing one: it fails with `not_found` and `instance not found: <id>`. All errors are
 * `ServiceError`s.
 */
export interface AgentInstances {
  /**
   * Creates an instance. Returns when its sandbox runs, its runtime has connected and its code was loaded or
   * failed to load (`loadError`). Bounded by the create budget. Fails with
   * - `already_exists` (`agent <namespace>/<name> already exists`, body `{instance_id}`), also for an
   * idempotency key of another request (`idempotency key … was used with another request`);
   * - `failed_precondition`, `unavailable`, `deadline_exceeded`, `internal`: the cause; everything is
   * removed.
   */
  create(request: CreateInstance): Promise<Instance>;

  /**
   * Runs one call of the handler. A durable instance that is SLEEPING or FAILED is started first. `Call`
   * defines order, bounds and cancellation. The smaller of `call.timeoutMs` and the instance's
   * `callTimeoutMs` applies. Fails with
   * - `Asleep` for a SLEEPING instance if `call.mayWake` is false;
   * - `not_found`, also for another instance that is not RUNNING;
   * - `resource_exhausted` (`too many calls are waiting`, with `retryAfterSeconds`);
   * - `deadline_exceeded` (`timed out after <n> s`);
   * - `unavailable` (`instance exited: <exit code or signal>`, or the client disconnected).
   */
  invoke(tenant: string, id: string, call: Call): Promise<AgentOutcome>;

  /**
   * Returns the error with which `invoke` would now refuse any call. undefined: a call may succeed, or this
   * process cannot tell at once.
   */
  refusal(tenant: string, id: string): ServiceError | undefined;

  get(tenant: string, id: string): Promise<Instance>;

  /** Returns an instance of any tenant; null: it does not exist. The caller checks the tenant. */
  find(id: string): Promise<Instance | null>;

  /** Returns the ids of all instances with a template, of every tenant and node. */
  sandboxIds(): Promise<readonly string[]>;

  /** Returns the ids of the instances with a template that run on this node, by tenant. */
  liveSandboxes(): readonly { readonly tenant: string; readonly id: string }[];

  list(query: InstanceQuery): Promise<{ readonly instances: readonly Instance[]; readonly nextCursor: string | null }>;

  /**
   * Runs pre_stop, ends and removes the instance within `graceMs` (null: the default rule). Fails with
   * `not_found` if the instance is already being deleted. `stages` measures each step.
   */
  delete(tenant: string, id: string, graceMs: number | null, stages?: ServerTiming): Promise<void>;

  /**
   * Starts a new sandbox with the same id and name, also for a FAILED or stuck instance. Fails as `create`
   * does; the instance is FAILED then. Fails with `already_exists` while another operation runs (`instance
   * <id> is being …`), and if the instance is deleted during the restart.
   */
  restart(tenant: string, id: string): Promise<Instance>;

  exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult>;

  /** Returns the current resource usage of a RUNNING instance. Fails with `failed_precondition` otherwise. */
  stats(tenant: string, id: string): Promise<SandboxStats>;

  /**
   * Returns the access to the sandbox of a RUNNING instance. Fails with `failed_precondition` otherwise, as
   * `exec` does, and if its driver has no access.
   */
  access(tenant: string, id: string): Promise<SandboxAccess>;

  /**
   * Sets the end of the instance to `ttlMs` from now; 0: no end. With `onlyLater` an end that is later, or
   * none, stays. For a PAUSED instance the time starts with the resume. Fails with `not_found` if the
   * instance is being deleted.
   */
  setExpiry(tenant: string, id: string, change: ExpiryChange): Promise<Instance>;

  /**
   * Freezes all processes of a RUNNING instance; it is PAUSED then, also after a restart of the service.
   * Memory, processes and files are kept. Open calls end, and later calls and accesses fail with
   * `failed_precondition` (`instance <id> is paused; …`). Fails with `already_exists` if the instance is
   * PAUSED or another operation changes it, and with `failed_precondition` if it does not run or its driver
   * cannot pause.
   */
  pause(tenant: string, id: string): Promise<Instance>;

  /**
   * Continues a PAUSED instance. Its remaining time to live continues, or begins anew if none remains;
   * `change` then applies, also to an instance that was not PAUSED (`resumed` is false). Concurrent resumes
   * share one. Fails with `already_exists` while another operation changes the instance, and with
   * `failed_precondition` if it neither is PAUSED nor runs.
   */
  resume(tenant: string, id: string, change?: ExpiryChange): Promise<ResumedInstance>;

  /**
   * Removes the sandbox of a durable instance that runs or is PAUSED; it is SLEEPING then. Its next use
   * starts it with its saved state. pre_stop does not run. Returns a SLEEPING instance unchanged. Fails with
   * `failed_precondition` if it is in use (body `{awake_because}`), is not durable or does not run, and with
   * `already_exists` while another operation changes it.
   */
  sleep(tenant: string, id: string, how?: SleepRequest): Promise<Instance>;

  /**
   * Starts a durable instance that is SLEEPING or FAILED, and continues a PAUSED one. Concurrent wakes and
   * uses share one start. Fails as `restart` does, and with `failed_precondition` if it cannot wake.
   */
  wake(tenant: string, id: string): Promise<WokenInstance>;

  /**
   * Changes settings of a durable instance, which its next start takes over. State and alarms stay. Fails
   * with
   * - `failed_precondition` if it is not durable, if this installation cannot run it so, or if it is to take
   * effect now and is still in use after a minute (body `{awake_because}`; the change is stored then);
   * - `already_exists` while another operation changes it;
   * - what `change.change` fails with.
   */
  update(tenant: string, id: string, change: AgentChange): Promise<Instance>;

  /** The alarms of durable instances. */
  readonly alarms: AgentAlarmStore;

  /** Exports and imports of durable instances. */
  readonly copies: AgentCopyStore;

  /** Returns the log of the sandbox, also for a FAILED instance, whose logs are kept until it is deleted. */
  logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<LogChunks>;

  /**
   * Returns the end of the log of an earlier run: 1 is the run before. Fails with `not_found` if it is not
   * kept.
   */
  previousLog(tenant: string, id: string, run: number, tail: number | null): Promise<string>;
}

/**
 * The alarms of durable instances. Each method fails with `not_found` like `AgentInstances.get`.
 */
export interface AgentAlarmStore {
  /** Returns the alarms of an instance by name. */
  list(tenant: string, id: string): Promise<readonly Alarm[]>;
  /**
   * Sets an alarm, and replaces the one of this name. Fails with `failed_precondition` if the instance is not
   * durable or would have too many.
   */
  set(tenant: string, id: string, alarm: Alarm): Promise<void>;
  /** Cancels an alarm. Fails with `not_found` if there is none of this name. */
  cancel(tenant: string, id: string, name: string): Promise<void>;
}

/**
 * Copies of durable instances. Each method fails with `not_found` like `AgentInstances.get`, and with
 * `failed_precondition` if the instance is not durable.
 */
export interface AgentCopyStore {
  /** Returns the settings of the next start, and the last saved state with its alarms. */
  read(tenant: string, id: string): Promise<AgentContent>;
  /**
   * Makes a SLEEPING instance. Fails with `already_exists` if its name is taken, and as a create does if this
   * installation cannot run it.
   */
  create(content: AgentContent): Promise<Instance>;
}

/** Durable instance without its sandbox and its files. */
export interface AgentContent {
  readonly spec: InstanceSpec;
  /** JSON; null: nothing was saved. */
  readonly state: string | null;
  readonly alarms: readonly Alarm[];
}

export interface CreateInstance {
  readonly spec: InstanceSpec;
  /**
   * Keeps the agent of this name running until the new one is ready and takes the name. If the new one fails,
   * also because of its code, the old agent continues.
   */
  readonly replaces?: boolean;
  /** Measures the steps of the create. */
  readonly stages?: ServerTiming;
  readonly idempotency?: { readonly key: string /** SHA-256 of tenant and body, hex. */; readonly requestHash: string };
}

export interface ExpiryChange {
  /** Milliseconds from now; 0: no end. */
  readonly ttlMs: number;
  /** Never moves the end to an earlier time. */
  readonly onlyLater?: boolean;
}

/** Options of a sleep of an agent that is in use. */
export interface SleepRequest {
  /** Longest wait for the end of its uses, milliseconds. Absent: the request fails at once. */
  readonly waitMs?: number;
  /** Cuts its uses off: open calls fail and change nothing. */
  readonly isForced?: boolean;
  /** Ends the wait when the caller leaves. */
  readonly signal?: AbortSignal;
}

export interface AgentChange {
  /** Returns the new settings, made from those of the next start. */
  readonly change: (spec: InstanceSpec) => Promise<InstanceSpec>;
  /** True: a running instance is put to sleep between two calls, so that its next use starts it so. */
  readonly isApplied?: boolean;
  /** Ends the wait for the end of its uses when the caller leaves. */
  readonly signal?: AbortSignal;
}

export interface ResumedInstance {
  readonly instance: Instance;
  /** False: the instance was running. */
  readonly resumed: boolean;
}

export interface WokenInstance {
  readonly instance: Instance;
  /** False: the instance was running. */
  readonly woken: boolean;
}

/** Outcome of a call. */
export type AgentOutcome = CallOutcome & {
  /** Reason of the start that the call caused or waited for. Absent: the instance was running. */
  readonly woke?: WakeReason;
};

export interface InstanceQuery {
  readonly tenant: string;
  /** Exact name; undefined: any. */
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  /** States that match. */
  readonly status?: InstanceStatus | readonly InstanceStatus[] | undefined;
  /** The labels that an agent must have, all of them. */
  readonly labels?: Labels | undefined;
  /** The template or templates that the agent was made from; null: any; undefined: with or without. */
  readonly template?: string | readonly string[] | null | undefined;
  /** Earliest start of the current sandbox, milliseconds; that moment counts. */
  readonly startedAfterMs?: number | undefined;
  /** Default: `id`. The others order by the start of the current sandbox, then by id. */
  readonly order?: 'id' | 'oldest' | 'newest' | undefined;
  /** Page size, 1 to 1000. */
  readonly limit: number;
  /** The `nextCursor` of the page before, in the same order; null: from the start. */
  readonly cursor: string | null;
}

import type { ServiceError } from '../core/error.ts';
import type { Instance, InstanceSpec, InstanceStatus } from '../core/instance.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { ExecRequest, ExecResult, LogRequest, SandboxStats } from '../sandbox/driver.ts';

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
   * Runs one call of the handler. `Call` defines order, bounds and cancellation. The smaller of
   * `call.timeoutMs` and the instance's `callTimeoutMs` applies. Fails with
   * - `not_found`, also for an instance that is not RUNNING;
   * - `resource_exhausted` (`too many calls are waiting`, with `retryAfterSeconds`);
   * - `deadline_exceeded` (`timed out after <n> s`);
   * - `unavailable` (`instance exited: <exit code or signal>`, or the client disconnected).
   */
  invoke(tenant: string, id: string, call: Call): Promise<CallOutcome>;

  /**
   * Returns the error with which `invoke` would now refuse any call. undefined: a call may succeed, or this
   * process cannot tell at once.
   */
  refusal(tenant: string, id: string): ServiceError | undefined;

  get(tenant: string, id: string): Promise<Instance>;

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

  /** Returns the log of the sandbox, also for a FAILED instance, whose logs are kept until it is deleted. */
  logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<AsyncIterable<Buffer>>;

  /**
   * Returns the end of the log of an earlier run: 1 is the run before. Fails with `not_found` if it is not
   * kept.
   */
  previousLog(tenant: string, id: string, run: number, tail: number | null): Promise<string>;
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

export interface InstanceQuery {
  readonly tenant: string;
  /** Exact name; undefined: any. */
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly status?: InstanceStatus | undefined;
  /** Page size, 1 to 1000. */
  readonly limit: number;
  /** Last id of the page before, in the order of ids; null: from the start. */
  readonly cursor: string | null;
}

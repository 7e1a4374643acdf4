import type { ServiceError } from '../core/error.ts';
import type { Instance, InstanceSpec, InstanceStatus } from '../core/instance.ts';
import type { Stages } from '../lib/stages.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { ExecRequest, ExecResult, LogRequest, SandboxStats } from '../sandbox/driver.ts';

/**
 * The only way in to agent instances: what the HTTP entries may ask of `Agents`. Every method that takes a tenant answers for another tenant's instance exactly as for one that does not
 * exist: `not_found` with `instance not found: <id>`. All errors are `ServiceError`s.
 */
export interface AgentInstances {
  /**
   * Creates an instance and returns when its sandbox runs, its runtime has connected and its code was loaded or failed to
   * load (`loadError`). Bounded by the create budget. Fails with
   * - `already_exists` (`agent <namespace>/<name> already exists`, body `{instance_id}`), also for an
   *   idempotency key that came with another body (`idempotency key … was used with another request`);
   * - `failed_precondition`, `unavailable`, `deadline_exceeded`, `internal`: the cause; nothing is left behind.
   */
  create(request: CreateInstance): Promise<Instance>;

  /**
   * One call of the handler. Order, bounds and cancellation as `Call` says; the smaller of `call.timeoutMs` and the instance's
   * `callTimeoutMs` counts. Fails with `not_found` (also for an instance that is not
   * RUNNING), `resource_exhausted` (`too many calls are waiting`, with `retryAfterSeconds`), `deadline_exceeded`
   * (`timed out after <n> s`), `unavailable` (`instance exited: <exit code or signal>`, or the caller went away).
   */
  invoke(tenant: string, id: string, call: Call): Promise<CallOutcome>;

  /** What `invoke` would be refused with now whatever the call says; undefined when it would not be, or when that cannot be known at once. */
  refusal(tenant: string, id: string): ServiceError | undefined;

  get(tenant: string, id: string): Promise<Instance>;

  list(query: InstanceQuery): Promise<{ readonly instances: readonly Instance[]; readonly nextCursor: string | null }>;

  /** pre_stop, end and removal under `graceMs` (null = the default rule). A second delete of one that is going fails with `not_found`. `stages` is told where the time goes. */
  delete(tenant: string, id: string, graceMs: number | null, stages?: Stages): Promise<void>;

  /**
   * Same id and name, new sandbox; also for a FAILED or stuck one. Fails as `create` does; it is FAILED then. Fails with `already_exists`
   * while it is being created, restarted or deleted (`instance <id> is being …`), and when it is deleted in the middle.
   */
  restart(tenant: string, id: string): Promise<Instance>;

  exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult>;

  /** What a RUNNING instance uses at this moment. Fails with `failed_precondition` otherwise. */
  stats(tenant: string, id: string): Promise<SandboxStats>;

  /** Ways into the sandbox of a RUNNING instance. Fails with `failed_precondition` otherwise, as `exec` does, and when its driver has none. */
  access(tenant: string, id: string): Promise<SandboxAccess>;

  /** Also for a FAILED instance, whose logs are kept until it is deleted. */
  logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<AsyncIterable<Buffer>>;

  /** The end of the log of an earlier run: 1 is the one before. Fails with `not_found` when it is not kept. */
  previousLog(tenant: string, id: string, run: number, tail: number | null): Promise<string>;
}

export interface CreateInstance {
  readonly spec: InstanceSpec;
  /** Told where the time goes. */
  readonly stages?: Stages;
  readonly idempotency?: { readonly key: string /** SHA-256 of tenant and body, hex. */; readonly requestHash: string };
}

export interface InstanceQuery {
  readonly tenant: string;
  /** Exact; undefined = any. */
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly status?: InstanceStatus | undefined;
  /** 1 to 1000. */
  readonly limit: number;
  /** The last id of the page before; null = from the start. Ordered by id. */
  readonly cursor: string | null;
}

import type { Generated } from 'kysely';
import type { CallMode } from '../core/finished-call.ts';
import type { InstanceStatus, OwnerKind, SandboxType } from '../core/instance.ts';
import type { JobErrorType, JobStatus } from '../core/job.ts';
import type { PoolStatus } from '../core/pool.ts';

/**
 * Record of `instances`: everything that has a sandbox, for all kinds of owners. The record is written before
 * a sandbox's id is published, so a sandbox without a record is an orphan. JSON columns hold text.
 */
export interface InstanceTable {
  id: string;
  owner_kind: OwnerKind;
  /** Key of the owner: an agent's id, a function version's URN, a job's number, or a build's key. */
  owner_key: string;
  tenant: string;
  /** `''` without a name; unique in tenant and namespace among agents. */
  namespace: string;
  name: string;
  status: InstanceStatus;
  status_reason: string;
  load_error: string;
  /** Counts the sandboxes of the instance, from 1. A change that names an earlier epoch has no effect. */
  epoch: number;
  node_id: string;
  sandbox_type: SandboxType;
  cpu_millis: number;
  memory_mb: number;
  /** Most calls at once; 0: the instance takes no calls. */
  concurrency: number;
  max_call_ms: number;
  /** Data of the owner about the instance. */
  spec: string;
  /** `SandboxFacts` */
  sandbox: string;
  /** `SandboxHandle` of the current sandbox; null before it exists. */
  handle: string | null;
  /** The secret that opens connections to the runtime. */
  secret: string;
  created_at_ms: number;
  started_at_ms: number;
  idempotency_key: string | null;
  /** SHA-256 of the create request that had the key. */
  request_hash: string | null;
  /** Consecutive restarts by the restart policy. */
  restarts_in_row: Generated<number>;
  /** Time of the next restart by the restart policy; 0: none. */
  restart_at_ms: Generated<number>;
  /** The labels of an agent, as `labelColumn` writes them; lists select by them. */
  labels: Generated<string>;
  /** The template of an agent; `''`: none. */
  template: Generated<string>;
  /** The time to live that was requested last; 0: none. */
  ttl_ms: Generated<number>;
  /** The end of an agent; 0: none. Without effect while the agent is PAUSED. */
  expires_at_ms: Generated<number>;
  /** The start of the last pause or sleep; 0 after a resume. */
  paused_at_ms: Generated<number>;
  /** Number of starts that ended a sleep. */
  wakes: Generated<number>;
}

/**
 * Record of `nodes`: one for each replica that has ever joined. A node is alive until `expires_at_ms`, by the
 * clock of the database.
 */
export interface NodeTable {
  id: string;
  /** Grows by 1 with each join. The node no longer owns the leases of its earlier epochs. */
  epoch: number;
  /** `host:port` at which other replicas reach the node; empty: unreachable. */
  advertise: string;
  /** Comma-separated names. */
  roles: string;
  version: string;
  joined_at_ms: number;
  expires_at_ms: number;
}

/** Record of `leases`. The lease is held until the named life of its node ends. */
export interface LeaseTable {
  name: string;
  /** Empty: the lease is free. */
  node_id: string;
  node_epoch: number;
  /** Grows by 1 with each change of the holder. */
  epoch: number;
}

/** Record of `feed`: a change of something that replicas keep in memory. */
export interface FeedTable {
  /** In commit order, without gaps. */
  seq: number;
  topic: string;
  /** Null: everything of the topic may have changed. */
  key: string | null;
  /** The node that made the change. */
  origin: string;
  at_ms: number;
}

/** The single record of `feed_counter`. */
export interface FeedCounterTable {
  id: number;
  seq: number;
}

/** The single record of `installation`, written by the migration that made the table. */
export interface InstallationTable {
  singleton: number;
  id: string;
}

/** The single record of `address_key`, written by the migration that made the table. */
export interface AddressKeyTable {
  singleton: number;
  /** Base64url. */
  key: string;
}

/** Record of `functions`: one version of a function. */
export interface FunctionTable {
  tenant: string;
  name: string;
  /** `$latest`, or the number of the published version. */
  version: string;
  revision_id: string;
  /** Newest change first is `change_seq` descending; unique in a tenant. */
  change_seq: number;
  /** Time of the last publish without a number; 0 = never. Used in the record `$latest` only. */
  default_published_at_ms: number;
  /** Expected path of the code on this host; `''` when the query omits it. */
  host_code_path: string;
  /** The secret of the object store that has the code. */
  code_token: string;
  /** The record in the form of the answer: JSON text that ends with an empty `status` member. */
  record: string;
}

/**
 * Record of `function_totals`: the number of versions of a tenant with one version number. A page's total
 * therefore needs no count. The record `$latest` counts functions, since each function has one `$latest`; its
 * `last_change` is the newest `change_seq`. The record `''` counts all published versions.
 */
export interface FunctionTotalTable {
  tenant: string;
  version: string;
  total: number;
  /** 0 except in the record `$latest`. */
  last_change: number;
}

export type AsyncCallStatus = 'queued' | 'processing' | 'completed' | 'failed';

/** Record of `async_calls`. */
export interface AsyncCallTable {
  id: string;
  tenant: string;
  urn: string;
  status: AsyncCallStatus;
  /** JSON: the request without its body; `''` after the call has ended. */
  request: string;
  body: Uint8Array;
  /** `''`: none. */
  webhook_url: string;
  /** JSON text of the handler's value. */
  result: string | null;
  /** JSON of `{code, message}`. */
  error: string | null;
  created_at_ms: number;
  completed_at_ms: number | null;
  /** The shard of the function. The holder of the lease with this name runs the call. */
  shard: string;
  /** The epoch of that lease when the call was claimed; 0 before. */
  lease_epoch: number;
}

/** Record of `reservations`: the reserved instances of a label of a function version. */
export interface ReservationTable {
  tenant: string;
  name: string;
  version: string;
  label: string;
  /** JSON of `ReservedCluster[]`. */
  clusters: string;
}

/** Record of `code_packages`: a tenant has uploaded this content. */
export interface CodePackageTable {
  tenant: string;
  sha256: string;
  /** The location of the bytes: `disk` of the only node, `store` (the object store), or `database`. */
  place: 'disk' | 'store' | 'database';
  /** Unique per upload, so that a removal cannot delete a newer upload. */
  blob: string;
  bytes: number;
  /** Size of the unpacked files and directories on a disk; 0 when an earlier version stored the package. */
  unpacked_bytes: number;
  created_at_ms: number;
  /** The time of the last upload or the last new use. */
  used_at_ms: number;
}

/** Record of `code_package_parts`: bytes of a package that is stored in the database. */
export interface CodePackagePartTable {
  blob: string;
  part: number;
  at_ms: number;
  content: Uint8Array;
}

/** Record of `secrets`. */
export interface SecretTable {
  tenant: string;
  name: string;
  /** The id of the key that encrypted the value. */
  key_id: string;
  /** The encrypted value. */
  sealed: Uint8Array;
  created_at_ms: number;
  updated_at_ms: number;
}

/** Record of `api_keys`: a key of the E2B protocol. */
export interface ApiKeyTable {
  /** SHA-256 of the key, hexadecimal. */
  hash: string;
  /** Names the key without opening anything. */
  id: string;
  tenant: string;
  role: 'viewer' | 'user' | 'developer';
  created_at_ms: number;
}

/** Record of `template_builds`: one build of a template of a tenant. */
export interface TemplateBuildTable {
  id: string;
  tenant: string;
  /** Shared by all builds of one name. */
  template_id: string;
  name: string;
  status: 'waiting' | 'building' | 'ready' | 'error';
  /** Why the build failed, and at which step; `''` otherwise. */
  reason: string;
  step: string;
  /** JSON: the time of the assignment by tag, milliseconds since 1970. Builds of a name share no tag. */
  tags: string;
  /** The package with the template's files; `''`: none. */
  sha256: string;
  /** JSON of a `TemplateSpec`. */
  spec: string;
  created_at_ms: number;
  /** Written every few seconds while the build runs. */
  updated_at_ms: number;
}

/** Record of `template_files`: files that a client uploaded for a build. */
export interface TemplateFilesTable {
  tenant: string;
  /** The client's hash of names and contents. */
  hash: string;
  /** The package with the client's archive. */
  sha256: string;
  created_at_ms: number;
}

/** The reason why a running job was asked to stop; `''` for none. */
export type StopReason = '' | 'stopped' | 'timeout';

/**
 * Record of `jobs`. PENDING without `instance_id`: the job waits and has no sandbox. PENDING with
 * `instance_id`: the job is starting, and only its sandbox shows whether it has begun.
 */
export interface JobTable {
  sequence: number;
  tenant: string;
  id: string;
  fingerprint: string;
  /**
   * The node that runs the job or will run it; `''`: unassigned, since its node was lost (`job-owners.ts`).
   */
  node_id: string;
  /** The process of that node. An older process must not act on the job. */
  node_epoch: Generated<number>;
  /** `JobSpec` */
  spec: string;
  status: JobStatus;
  message: string;
  error_type: JobErrorType;
  exit_code: number | null;
  attempt: number;
  /** The earliest start; 0: at once. */
  not_before_ms: number;
  instance_id: string;
  pid: string;
  stop_reason: StopReason;
  submitted_at_ms: number;
  started_at_ms: number | null;
  /** null until the job has ended. */
  ended_at_ms: number | null;
  /** 1: the object store has the whole log of the ended job. */
  is_log_stored: Generated<number>;
}

/** Record of `job_schedules`. */
export interface JobScheduleTable {
  tenant: string;
  id: string;
  cron: string;
  /** An IANA name. */
  timezone: string;
  /** Behaviour when a run is due while the previous job is still open. */
  overlap: 'skip' | 'allow';
  /** JSON: the body of the submits. */
  submission: string;
  /**
   * Time of the last write. A replacement has a later time, so that no node submits a job of the replaced
   * schedule.
   */
  created_at_ms: number;
  /** All moments up to this time are decided, and no node decides them again. */
  decided_until_ms: number;
}

/**
 * Record of `job_packages`: a node or the object store has this package. Written only with several nodes or
 * with an object store.
 */
export interface JobPackageTable {
  tenant: string;
  name: string;
  /** `''`: the object store, under `object`. */
  node_id: string;
  /** The process of that node that wrote the record last. */
  node_epoch: number;
  /**
   * The key of the object; `''` for a node. Unique per upload, so that a removal cannot delete a newer
   * upload.
   */
  object: string;
  bytes: number;
  sha256: string;
  /** The time of the last upload or use, on any node. */
  used_at_ms: number;
}

/** Record of `pools`. Pools belong to the cluster, not to a tenant. */
export interface PoolTable {
  id: string;
  pool_group: string;
  /** Newest change first is `change_seq` descending. */
  change_seq: number;
  status: PoolStatus;
  msg: string;
  ready_count: number;
  /** JSON of `PoolSpec`. */
  spec: string;
}

/**
 * Record of `calls`: a call of an agent or a function that has ended. Durations are microseconds; all are 0
 * except `elapsed_us` for a call that did not run.
 */
export interface CallTable {
  /** The request id. */
  id: string;
  tenant: string;
  kind: 'agent' | 'function';
  /** Selects calls in lists: the id of an agent, or the name of a function without its version. */
  subject: string;
  /** Shown to people: `<namespace>/<name>` of an agent, the name of a function. */
  name: string;
  /** Version of a function; `''` for an agent. */
  version: string;
  /** `''` when the call got no instance. */
  instance_id: string;
  node_id: string;
  mode: CallMode;
  /** Name of the token; `''`: none. */
  caller: string;
  trace_id: string;
  /** The first 18 characters of the id of the call that made this one; `''`: none is known. */
  parent: string;
  outcome: 'ok' | 'error';
  code: string;
  started_at_ms: number;
  elapsed_us: number;
  queue_us: number;
  place_us: number;
  start_us: number;
  load_us: number;
  run_us: number;
  /** Bytes of the whole input and output. */
  input_bytes: number;
  output_bytes: number;
  /** 1 if only the beginning is stored, else 0. */
  input_cut: number;
  output_cut: number;
  /** Bytes that count for the tenant. */
  bytes: number;
  error: string;
  /** Beginnings, with hidden values replaced. */
  input: string;
  output: string;
  /** JSON of `CallSpans`, with hidden values replaced; `''`: none. */
  spans: string;
  /** Number among the tenant's records, in the order of their commits; 0: written by an earlier version. */
  seq: number;
}

/** A record of a call before it is written. */
export type NewCall = Omit<CallTable, 'seq'>;

/** Record of `call_totals`: the sum of `bytes` of a tenant's calls, and the number of the last record. */
export interface CallTotalTable {
  tenant: string;
  bytes: number;
  last_seq: number;
}

/** Record of `call_recordings`: all calls of an agent or function are recorded until `ends_at_ms`. */
export interface CallRecordingTable {
  tenant: string;
  kind: 'agent' | 'function';
  /** The id of the agent, or the name of the function without its version. */
  target: string;
  started_at_ms: number;
  ends_at_ms: number;
}

// Made by `npm run generate` from openapi/rookery.json.
export type Agent = {
  instance_id: string;
  namespace: string;
  name: string;
  tenant: string;
  status: "CREATING" | "RUNNING" | "STOPPING" | "FAILED" | "PAUSED" | "SLEEPING";
  /** Why the agent is FAILED. For a RUNNING agent, why its state is unknown (its node does not answer). */
  status_reason?: string;
  sandbox_type: string;
  sandbox_id: string;
  node_id: string;
  node_ip: string;
  sandbox_ip: string;
  runtime: string;
  handler: string;
  codePath: string;
  httpProfile?: string;
  extendedHandler?: AgentExtendedHandler;
  dependencies?: string;
  urn?: string;
  rootfs: AgentRootfs;
  ports: string[];
  port_mappings: PortMapping[];
  expose?: AgentAddress;
  env_vars: Record<string, string | StoredSecretReference>;
  resources: AgentResources;
  start_time: string | null;
  restarts: number;
  restart_policy?: StoredRestartPolicy;
  /** When its policy starts it again. */
  restart_at?: string;
  /** Only of a sandbox without code. */
  template?: string;
  labels?: Record<string, string>;
  /** The end of its time to live, which does not run in a pause. */
  expires_at?: string;
  idle_seconds?: number;
  on_expiry?: "delete" | "pause";
  /** Only of a PAUSED one. */
  paused_at?: string;
  durable?: AgentDurable;
  /** The layers that hold: `mount`, `pid`, `cgroup.memory` … */
  isolation: string[];
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
  /** Why its code could not be loaded. */
  load_error?: string;
};

/** Only of one that was created with it. */
export type AgentAddress = {
  port: number;
  access: "token" | "link" | "public";
  /** null: its tenant cannot stand in a host name. */
  address: string | null;
  /** At the service’s own host name. */
  path: string;
};

/** Only of a durable agent. */
export type AgentDurable = {
  schema: number;
  /** Size of the saved state as JSON. */
  state_bytes: number;
  /** Number of saves. */
  state_version: number;
  saved_at?: string;
  /** Number of starts after the first. */
  wakes: number;
  /** Time without use until it sleeps; 0: only on request. */
  sleep_after_seconds: number;
  files?: AgentDurableFiles;
  /** Only with an alarm. */
  next_alarm_at?: string;
  /** Only of a SLEEPING one. */
  slept_at?: string;
  /** true: the next start takes the settings of this record. */
  is_changed?: boolean;
};

/** As asked. */
export type AgentDurableFiles = {
  path: string;
  max_mb: number;
};

export type AgentExecRequest = {
  /** A text is run by `/bin/sh -c`, a list is an argument vector. */
  command: string | string[];
  /** Seconds; at the end of them the whole process group ends. */
  timeout?: number;
  working_dir?: string;
  env?: Record<string, string>;
  stdin?: string;
};

export type AgentExecResponse = {
  /** -1 at the timeout. */
  returncode: number;
  stdout: string;
  stderr: string;
  truncated: boolean;
  /** The time limit ended it; `returncode` is -1 then. */
  timed_out: boolean;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

/** Gives a port an address of its own: docs/guides/addresses.md. */
export type AgentExpose = {
  /** A TCP port on 127.0.0.1 inside the sandbox. */
  port: number;
  /** Who may come: `token`, `link` (a token or a signed link), `public`. */
  access?: "token" | "link" | "public";
};

export type AgentExtendedHandler = {
  initializer: string;
  pre_stop: string;
  alarm?: string;
  sleep?: string;
};

export type AgentFork = {
  instance_id?: string;
  name?: string;
  error?: AgentForkError;
};

/** Why this fork did not start; the other members are absent then. */
export type AgentForkError = {
  /** The status of such an error of a create. */
  code: number;
  message: string;
};

export type AgentResources = {
  cpu: number;
  memory: number;
};

export type AgentRootfs = {
  type: "host" | "image";
  imageurl: string;
  user: string;
  workspace: string;
  mounts: StoredMount[];
};

export type AgentStarted = {
  code: 200;
  instance_id: string;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type AgentStatsResponse = {
  memory_bytes: number;
  /** Time on processors since the sandbox started. */
  cpu_micros: number;
  processes: number;
  /** Only of a SLEEPING agent, which uses nothing. */
  asleep?: true;
};

export type AutoScaleConfig = {
  /** Milliseconds; 0: not set. */
  slaQuota?: 0 | unknown;
  /** Milliseconds. */
  scaleDownTime?: number;
  /** Calls that may wait. */
  burstScaleNum?: number;
};

export type Build = {
  /** The same content for the same runtime has the same. */
  id: string;
  status: "BUILDING" | "READY" | "FAILED";
  /** Why it has failed. */
  reason: string;
  /** `pip`, `uv` or `npm`. */
  tool: string;
  runtime: string;
  started_at: string;
  ended_at: string | null;
};

export type CallAccepted = {
  requestId: string;
};

export type CallDetails = {
  /** The request id, which the handler sees as `request_id`. */
  id: string;
  kind: "agent" | "function";
  /** The `instance_id` of an agent. */
  agent_id?: string;
  /** `<namespace>/<name>` of an agent; empty when it was deleted early. */
  name?: string;
  /** `0@<service>@<name>` */
  function?: string;
  version?: string;
  /** Empty when the call got no instance. */
  instance_id: string;
  node_id: string;
  mode: "sync" | "stream" | "async" | "lambda" | "alarm";
  tenant: string;
  /** The claim `name` of the token, else `jti`, or `alarm` and the name of the alarm; empty without either. */
  caller: string;
  trace_id: string;
  /** The call whose handler made this one and passed its `traceparent` on; null when the history has none. */
  parent_id: string | null;
  outcome: "ok" | "error";
  /** The number of a failure, or the word of a failure of the service, or `cancelled`. */
  error_code: string | null;
  /** The text of a failure; viewers do not get it. */
  error?: string;
  start_time: string;
  duration_ms: number;
  queue_ms: number;
  place_ms: number;
  start_ms: number;
  load_ms: number;
  run_ms: number;
  input_bytes: number;
  output_bytes: number;
  /** Spans of the handler's code. */
  spans: CallDetailsSpansItem[];
  /** Spans and attributes above a limit. */
  dropped_spans: number;
  /** Its beginning, with hidden values replaced; not for viewers. */
  input?: string;
  /** As `input`; null for a failure. */
  output?: string | null;
  is_input_cut?: boolean;
  is_output_cut?: boolean;
};

export type CallDetailsSpansItem = {
  name: string;
  /** Position of the span that contains this one; null: none. */
  parent: number | null;
  /** Since the handler started. */
  start_ms: number;
  duration_ms: number;
  outcome: "ok" | "error";
  /** Not for viewers. */
  attributes?: Record<string, string | number | boolean>;
  /** The text of a failure; not for viewers. */
  error?: string;
};

export type CallError = {
  code: number;
  message: string;
};

export type CallFailed = {
  code: 500;
  data: null;
  message: string;
};

export type CallRecord = {
  /** The request id, which the handler sees as `request_id`. */
  id: string;
  kind: "agent" | "function";
  /** The `instance_id` of an agent. */
  agent_id?: string;
  /** `<namespace>/<name>` of an agent; empty when it was deleted early. */
  name?: string;
  /** `0@<service>@<name>` */
  function?: string;
  version?: string;
  /** Empty when the call got no instance. */
  instance_id: string;
  node_id: string;
  mode: "sync" | "stream" | "async" | "lambda" | "alarm";
  tenant: string;
  /** The claim `name` of the token, else `jti`, or `alarm` and the name of the alarm; empty without either. */
  caller: string;
  trace_id: string;
  /** The call whose handler made this one and passed its `traceparent` on; null when the history has none. */
  parent_id: string | null;
  outcome: "ok" | "error";
  /** The number of a failure, or the word of a failure of the service, or `cancelled`. */
  error_code: string | null;
  /** The text of a failure; viewers do not get it. */
  error?: string;
  start_time: string;
  duration_ms: number;
  queue_ms: number;
  place_ms: number;
  start_ms: number;
  load_ms: number;
  run_ms: number;
  input_bytes: number;
  output_bytes: number;
};

export type CallRecording = {
  kind: "agent" | "function";
  /** The `instance_id` of an agent. */
  agent_id?: string;
  /** `0@<service>@<name>` */
  function?: string;
  start_time: string;
  end_time: string;
};

export type CallRecordingRequest = {
  /** The `instance_id` of an agent. */
  agent?: string;
  /** A function: `<service>@<name>`, `0@<service>@<name>` or its URN. All its versions. */
  function?: string;
  /** How long, from now on. */
  seconds?: number;
};

export type CallResult = {
  requestId: string;
  status: "queued" | "processing" | "completed" | "failed";
  result?: unknown;
  error?: CallError;
  createdAt: string;
  completedAt?: string;
};

export type CancelAgentAlarmResponse = {
  code: 200;
  status: "cancelled";
};

export type Cluster = {
  /** The replica that answers. */
  node_id: string;
  /** `sqlite`: embedded, and so there is one replica. */
  storage: "sqlite" | "postgres";
  /** False: it has lost its place and tries to get a new one. */
  is_member: boolean;
  /** How long ago its last heartbeat reached the database. */
  heartbeat_age_ms: number;
  /** How far it may be behind the changes of others. */
  feed_behind_ms: number;
  shards: ClusterShards;
  /** The node that dispatches jobs and schedules. Null: no node at the moment. */
  jobs: string | null;
  /** The node that cleans up once for all. */
  sweeper: string | null;
  /** Those that are alive, by id. */
  nodes: ClusterNode[];
};

export type ClusterNode = {
  id: string;
  /** One more with each start, and after each time that it was counted as dead. */
  epoch: number;
  /** `host:port` where other replicas reach this node. Empty: none does. */
  address: string;
  /** None: it is about to go. */
  roles: string[];
  version: string;
  joined_at: string;
  /** How many of the shards of functions it owns. */
  shards: number;
  /** `jobs` (their queue and the schedules), `sweeper`. */
  leases: string[];
};

export type ClusterShards = {
  total: number;
  owned: number;
};

export type CodePackage = {
  /** SHA-256 of the archive. */
  sha256: string;
  /** `code://<sha256>`: what a mount or a `codePath` names. */
  source: string;
  /** Of the archive. */
  bytes: number;
  created_at: string;
  /** Its upload, or when something last began to use it. */
  used_at: string;
};

export type CodePackageAnswer = {
  code: 200;
  package: CodePackage;
};

export type CreateAgentRequest = {
  namespace: string;
  name: string;
  runtime_spec?: RuntimeSpec;
  /** functionVersionUrn of a registered function (registered mode). */
  urn?: string;
  /** Makes a sandbox without code, which takes commands, files and ports. Of `runtime_spec`, which may be absent, it takes `sandbox_type`, `rootfs`, `cpu` and `memory`. */
  template?: string;
  /** Makes a sandbox without code from an image that the Docker daemon of the service has. Takes `cpu` and `memory` of `runtime_spec`; no mounts. */
  image?: string;
  env_vars?: Record<string, string | SecretReference>;
  /** Absolute path on the host; empty: none. */
  workspace?: string;
  mounts?: Mount[];
  expose?: AgentExpose;
  /** What follows when its sandbox ends by itself; absent: `never`. */
  restart_policy?: "never" | "on-failure" | "always" | RestartPolicy;
  /** `true`: what the code keeps in `context.state` is saved before a call is answered, and survives crashes and restarts. */
  durable?: boolean | CreateAgentRequestDurable;
  /** The agent that holds the name keeps running until the new one is ready: its code is loaded and its initializer has run. Then the new agent gets the name and the old one is deleted. When the new one fails, it is removed and the old one keeps running. Without an agent of this name it is a create whose code must load. */
  replace?: boolean;
  /** Names and values; lists select agents by them. */
  labels?: Record<string, string>;
  /** Time to live from the start; absent: until it is deleted. */
  ttl_seconds?: number;
  /** It ends after this time without a call, a command or other access. */
  idle_seconds?: number;
  /** The action at the end of `ttl_seconds` or `idle_seconds`. */
  on_expiry?: "delete" | "pause";
};

export type CreateAgentRequestDurable = {
  /** Has no effect yet. */
  pause_after_seconds?: unknown;
  /** Has no effect yet. */
  save?: unknown;
  /** Has no effect yet. */
  schema?: unknown;
  /** Has no effect yet. */
  code?: unknown;
  /** Has no effect yet. */
  busy?: unknown;
  /** Has no effect yet. */
  wake_on?: unknown;
  /** Has no effect yet. */
  max_awake_seconds?: unknown;
  files?: CreateAgentRequestDurableFiles;
  /** It sleeps after this time without a call, a command or other access; 0: only on request. With `idle_seconds` the default is 0. */
  sleep_after_seconds?: number;
};

/** A directory that is kept when its process ends; not with kubernetes. */
export type CreateAgentRequestDurableFiles = {
  /** Absolute path of the directory inside the sandbox. */
  path: string;
  /** Above it the agent does not fall asleep. */
  max_mb?: number;
};

export type CreateApiKeyRequest = {
  /** The role of clients with the key: `viewer` lists sandboxes, `developer` may do everything. */
  role?: "developer" | "user" | "viewer";
};

export type CreateApiKeyResponse = {
  code: 200;
  key: CreateApiKeyResponseKey;
  /** The key: `e2b_` and 40 hexadecimal digits. */
  value: string;
};

export type CreateApiKeyResponseKey = {
  /** Names the key in later requests. It opens nothing. */
  id: string;
  role: string;
  created_at: string;
};

export type CreateAwsKeyRequest = {
  /** The role of clients with the key: `viewer` lists functions, `user` also calls them. */
  role?: "developer" | "user" | "viewer";
};

export type CreateAwsKeyResponse = {
  code: 200;
  key: CreateAwsKeyResponseKey;
  /** `AWS_ACCESS_KEY_ID` of clients. */
  access_key_id: string;
  /** `AWS_SECRET_ACCESS_KEY` of clients. */
  secret_access_key: string;
};

export type CreateAwsKeyResponseKey = {
  /** Names the key in later requests. It opens nothing. */
  id: string;
  role: string;
  created_at: string;
};

export type CreateBuildRequest = {
  /** The code: `code://<sha256>`, or a directory of the host. */
  source: string;
  runtime: string;
  /** Of what will run it. Empty: the default executor. */
  sandbox_type?: "" | "docker" | "supervisor" | "kubernetes";
};

export type CreateBuildResponse = {
  code: 200;
  build: Build | null;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type CreateJobScheduleRequest = {
  schedule_id?: string | null;
  /** Five or six fields. */
  cron: string;
  timezone?: string | null;
  overlap?: "skip" | "allow" | null;
  job: JobRequest;
};

export type CreatePoolsRequest = {
  pools: PoolRequest[];
};

export type CreatePoolsResponse = {
  code: 0;
  message: "";
  result: CreatePoolsResponseResult;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type CreatePoolsResponse2 = {
  code: number;
  /** Why, one sentence for each pool, joined by `;`. */
  message: string;
  result?: CreatePoolsResponse2Result;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type CreatePoolsResponse2Result = {
  /** The others were created. */
  failed_pools: string[];
};

export type CreatePoolsResponseResult = {
  failed_pools: null;
};

export type DeleteFunctionResponse = {
  code: 0;
  message: "SUCCESS";
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type DeleteReservedInstancesRequest = {
  /** `0@{service}@{funcName}`, such as `0@demo@hello`, or a URN of the function; the version of a URN must be `version`. */
  funcName?: string;
  version?: string;
  /** Absent: all. */
  instanceLabel?: string;
};

export type Deleted = {
  code: 200;
  status: "deleted";
};

export type Error = {
  code: number;
  message: string;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type FileEntry = {
  /** Absolute, inside. */
  path: string;
  name: string;
  /** Only where the path is not UTF-8: `path` and `name` have U+FFFD for each byte that is none, and no request can name the file. */
  not_utf8?: true;
  type: "file" | "directory" | "symlink" | "other";
  /** Bytes. */
  size: number;
  /** Octal, such as `0644`. */
  mode: string;
  modified_at: string;
};

export type FileFacts = {
  /** Absolute, inside. */
  path: string;
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  /** Bytes. */
  size: number;
  /** Octal, such as `0644`. */
  mode: string;
  modified_at: string;
  /** Its name in the sandbox, or its number. */
  owner: string;
  group: string;
  /** Its attributes whose names begin with `user.e2b.`, without that. */
  metadata: Record<string, string>;
  target?: FileFactsTarget;
};

/** Only of a symbolic link: where it leads. */
export type FileFactsTarget = {
  path: string;
  /** null: it does not exist. */
  type: "file" | "directory" | "symlink" | "other" | null;
};

export type Finding = {
  name: string;
  status: "ok" | "warn" | "fail";
  text: string;
  notes: string[];
};

export type ForkAgentRequest = {
  /** With a `count` above 1, `-1`, `-2` … follow it. Absent: the service makes names up. */
  name?: string;
  /** Absent: that of the original. */
  namespace?: string;
  count?: number;
  /** In addition to the variables of the original. */
  env_vars?: Record<string, string | SecretReference>;
  /** Time to live from the start; absent: that with which the original was created. */
  ttl_seconds?: number;
  /** The files suffice, although the original runs processes. */
  files_only?: boolean;
};

export type FunctionAnswer = {
  code: 0;
  message: "SUCCESS";
  function: FunctionVersion;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type FunctionError = {
  code: number;
  message: string;
  trace_id?: string;
};

/** Gives a port of its instances an address: docs/guides/addresses.md. */
export type FunctionExpose = {
  /** A TCP port on 127.0.0.1 inside; 0: none has an address. */
  port: number;
  /** Who may come: `token`, `link` (a token or a signed link), `public`. */
  access?: "token" | "link" | "public";
};

export type FunctionHookTimeouts = {
  /** Seconds. */
  initializer?: number;
  /** Seconds. */
  pre_stop?: number;
};

export type FunctionHooks = {
  initializer?: string;
  pre_stop?: string;
  /** Of durable agents: what gets their alarms. */
  alarm?: string;
  /** Of durable agents: what runs before they fall asleep. */
  sleep?: string;
};

export type FunctionInstance = {
  instance_id: string;
  status: string;
  running_calls: number;
  label: string;
  cpu: number;
  memory: number;
  start_time: string;
};

export type FunctionMount = {
  /** Absolute path on the host; not an unsafe one. */
  source: string;
  /** Path inside the sandbox. */
  target: string;
  readonly?: boolean;
};

export type FunctionRegistered = {
  code: 0;
  message: "SUCCESS";
  functionVersionUrn: string;
  function: FunctionVersion;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type FunctionRootfs = {
  /** `image` for an image. */
  type?: string;
  imageurl?: string;
  /** Empty: root. */
  user?: string;
  ports?: string[];
  path?: string;
  readonly?: boolean;
  mounts?: FunctionMount[];
};

export type FunctionStatsResponse = {
  instances: FunctionStatsResponseInstancesItem[];
};

export type FunctionStatsResponseInstancesItem = {
  instance_id: string;
  memory_bytes: number;
  /** Time on processors since the sandbox started. */
  cpu_micros: number;
  processes: number;
  /** Only of a SLEEPING agent, which uses nothing. */
  asleep?: true;
};

export type FunctionVersion = {
  /** The functionVersionUrn. */
  id: string;
  createTime: string;
  updateTime: string;
  functionUrn: string;
  name: string;
  kind: "agent" | "faas" | "yrlib" | "custom";
  tenantId: string;
  businessId: string;
  productId: string;
  reversedConcurrency: number;
  description: string;
  tag: Record<string, string> | null;
  functionVersionUrn: string;
  revisionId: string;
  codeSize: number;
  codeSha256: string;
  storageType: "" | "local" | "s3" | "copy" | "package";
  codePath: string;
  httpProfile?: string;
  dependencies?: "auto";
  bucketId: string;
  objectId: string;
  s3CodePath: StoredS3CodePath | null;
  handler: string;
  extendedHandler: AgentExtendedHandler;
  extendedTimeout: StoredFunctionHookTimeouts;
  layers: unknown[] | null;
  cpu: number;
  memory: number;
  runtime: string;
  timeout: number;
  versionNumber: string;
  versionDesc: string;
  environment: Record<string, string | StoredSecretReference>;
  customResources: Record<string, number> | null;
  statefulFlag: number;
  lastModified: string;
  Published: string;
  created: string;
  sandboxType: string;
  rootfs: StoredFunctionRootfs | null;
  minInstance: number;
  maxInstance: number;
  concurrentNum: number;
  poolId: string;
  idleTime: number;
  autoScaleConfig: StoredAutoScaleConfig | null;
  schedulePolicies: unknown[] | null;
  enableSessionCtx: boolean;
  enableAgentSession: boolean;
  isFuncPublic: boolean;
  funcLayer: unknown[];
  instanceNum: number;
  device: Record<string, unknown>;
  inputSchema?: Record<string, unknown>;
  validateInput?: boolean;
  status: "" | "unavailable";
};

export type GetAgentResponse = {
  code: 200;
  instance: Agent;
};

export type GetBuildResponse = {
  code: 200;
  build: Build;
};

export type GetCallResponse = {
  code: 200;
  call: CallDetails;
};

export type GetFindingsResponse = {
  findings: Finding[];
};

export type GetJobApiVersionResponse = {
  version: string;
  ray_version: string;
  ray_commit: string;
};

export type GetJobLogsResponse = {
  logs: string;
};

export type GetMetricsHistoryResponse = {
  /** Between two points. */
  step_seconds: number;
  /** When the step of the first point began, seconds since 1970. */
  start: number;
  /** A list of points for each name, the oldest first; null: not known. `calls` and `errors` of each step, `p50_ms` and `p99_ms` of its calls; of a function also `instances` and `instances_ready`; of the service also levels: CPU, memory, instances, open calls, jobs. Of several replicas sums, and of percentiles the highest. */
  series: Record<string, (number | null)[]>;
  /** The replicas whose numbers are in it. */
  nodes: string[];
  /** Replicas that live and did not answer: their numbers are missing. */
  silent_nodes: string[];
};

export type GetSettingsResponse = {
  settings: Setting[];
};

export type GetUsageResponse = {
  /** By the id of an agent, or the name of a function. Without calls and readings it is absent. */
  usage: Record<string, GetUsageResponseUsageValue>;
  /** The replicas whose numbers are included. */
  nodes: string[];
  /** Replicas that live and did not answer. */
  silent_nodes: string[];
};

export type GetUsageResponseUsageValue = {
  /** Calls that ended in the last 55 to 60 minutes. */
  calls: number;
  /** Those of them that failed. */
  errors: number;
  /** Null without calls. */
  p99_ms: number | null;
  /** Thousandths of a processor, between the two newest readings. Null: unknown. */
  cpu_millis: number | null;
  /** Memory at the newest reading. Null: unknown. */
  memory_mb: number | null;
  /** Only of a function: its running instances. */
  instances?: number;
};

export type HealthResponse = {
  status: string;
};

export type ImportAgentResponse = {
  code: 201;
  instance_id: string;
};

export type InvokeAgentResponse = {
  code: 200;
  /** What the handler returned. */
  data: unknown;
  message: "";
};

export type Job = {
  type: "SUBMISSION";
  job_id: null;
  submission_id: string;
  driver_info: JobDriver;
  status: "PENDING" | "RUNNING" | "STOPPED" | "SUCCEEDED" | "FAILED";
  entrypoint: string;
  message: string;
  error_type: string;
  /** Milliseconds, when it was submitted. */
  start_time: string;
  end_time: string | null;
  metadata: Record<string, string>;
  runtime_env: Record<string, unknown>;
  driver_agent_http_address: "";
  driver_node_id: string;
  driver_exit_code: number | null;
  attempt: number;
  max_attempts: number;
  /** Milliseconds, when this attempt started. */
  run_time: string | null;
  /** Only of one job: what it waits for in the queue of this replica. */
  waits_for?: string;
};

export type JobDriver = {
  id: string;
  node_ip_address: string;
  pid: string;
};

export type JobRequest = {
  /** One line for `/bin/sh -c`. */
  entrypoint: string;
  job_id?: string | null;
  submission_id?: string | null;
  metadata?: Record<string, string> | null;
  runtime_env?: RuntimeEnv | null;
  entrypoint_label_selector?: Record<string, string> | null;
  entrypoint_memory?: number | null;
  entrypoint_resources?: Record<string, number> | null;
  entrypoint_num_cpus?: number | null;
  entrypoint_num_gpus?: number | null;
};

export type JobSchedule = {
  schedule_id: string;
  cron: string;
  timezone: string;
  overlap: "skip" | "allow";
  job: Record<string, unknown>;
  create_time: string;
  next_run_time: string | null;
};

export type Link = {
  code: 200;
  /** Whoever has it may come until then; it leads to the address without the signature. */
  url: string;
  expires_at: string;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type LinkRequest = {
  /** How long the link, and the session that it opens, is valid. */
  expires_seconds?: number;
};

export type ListAgentAlarmsResponseItem = {
  name: string;
  /** Names one due time; the retries of that time have the same id. */
  id: string;
  /** The next time. */
  at: string;
  /** Seconds. */
  every?: number;
  cron?: string;
  tz?: string;
  max_late_seconds?: number;
  /** Only after a failed delivery. */
  retry_at?: string;
  /** Failed deliveries of this time. */
  attempts: number;
  /** Earlier regular times that were not delivered. */
  missed: number;
  /** true: all attempts have failed; it is not delivered again. */
  failed: boolean;
  /** Why the last delivery failed. */
  last_error?: string;
};

export type ListAgentsResponse = {
  code: 200;
  instances: Agent[];
  next_cursor: string | null;
};

export type ListApiKeysResponse = {
  code: 200;
  keys: CreateApiKeyResponseKey[];
};

export type ListAwsKeysResponse = {
  code: 200;
  keys: CreateAwsKeyResponseKey[];
};

export type ListBuildsResponse = {
  code: 200;
  builds: Build[];
};

export type ListCallRecordingsResponse = {
  code: 200;
  recordings: CallRecording[];
};

export type ListCallsResponse = {
  code: 200;
  calls: CallRecord[];
  next_cursor: string | null;
};

export type ListCodeResponse = {
  code: 200;
  packages: CodePackage[];
  next_cursor: string | null;
};

export type ListFilesResponse = {
  code: 200;
  files: FileEntry[];
  /** There are more than 10000. */
  truncated: boolean;
};

export type ListFunctionInstancesResponse = {
  instances: FunctionInstance[];
  /** The calls that wait for an instance. */
  waiting_calls: number;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type ListFunctionsResponse = {
  code: 0;
  message: "";
  result: ListFunctionsResponseResult;
};

export type ListFunctionsResponseResult = {
  total: number;
  functions: FunctionVersion[];
};

export type ListPoolsResponse = {
  code: 0;
  message: "";
  result: ListPoolsResponseResult;
};

export type ListPoolsResponseResult = {
  count: number;
  pools: Pool[];
};

export type ListProcessesResponse = {
  code: 200;
  processes: ListProcessesResponseProcessesItem[];
};

export type ListProcessesResponseProcessesItem = {
  pid: number;
  command: string[];
  working_dir: string;
  /** Empty: the user of the sandbox. */
  user: string;
  tag: string | null;
  tty: boolean;
  started_at: string;
};

export type ListReservedInstancesResponse = {
  code: 0;
  message: "";
  total: number;
  results: ListReservedInstancesResponseResultsItem[];
};

export type ListReservedInstancesResponseResultsItem = {
  instanceLabel: string;
  instanceConfigInfos: StoredReservedInstances[];
};

export type ListSecretsResponse = {
  code: 200;
  secrets: Secret[];
};

export type ListVersionsResponse = {
  code: 0;
  message: "";
  functions: FunctionVersion[] | null;
  pageInfo: ListVersionsResponsePageInfo;
};

export type ListVersionsResponsePageInfo = {
  total: number;
  pageSize: string;
  pageIndex: string;
};

export type LoginRequest = {
  /** A token, as the header `X-Auth` would carry it. */
  token?: string;
  /** Instead of a token: the code of a one-time link. */
  code?: string;
};

export type LogoutResponse = {
  code: number;
};

export type MakeDirectoryResponse = {
  code: 200;
  path: string;
};

export type MakeLoginLinkResponse = {
  code: string;
  expires_seconds: number;
};

export type MetaAnswer = {
  code: 0;
  message: "";
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type MetaRefusal = {
  code: number;
  message: string;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type Mount = {
  /** Absolute path on the host; or a code package, `code://<sha256>`, which is mounted read-only. */
  source: string;
  /** Path inside the sandbox. */
  target: string;
  readonly?: boolean;
};

export type NameTaken = {
  code: 409;
  message: string;
  /** The instance that holds the name. */
  instance_id?: string;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type NotReady = {
  code: number;
  message: string;
  components: Record<string, string>;
};

export type Pool = {
  id: string;
  group: string;
  size: number;
  max_size: number;
  /** 0 new, 1 creating, 2 update requested, 3 updating, 4 running, 5 failed, 6 deleting */
  status: number;
  msg: string;
  ready_count: number;
  resources: PoolResources;
  reuse: boolean;
  image: string;
  init_image: string;
  labels: Record<string, string> | null;
  environment: Record<string, string> | null;
  volumes: string;
  volume_mounts: string;
  affinities: string;
  node_selector: Record<string, string> | null;
  runtime_class_name: string;
  tolerations: string;
  horizontal_pod_autoscaler_spec: string;
  topology_spread_constraints: string;
  pod_pending_duration_threshold: number;
  idle_recycle_time: PoolIdleRecycleTime;
  scalable: boolean;
  pod_anti_affinities: string;
};

export type PoolIdleRecycleTime = {
  reserved: number;
  scaled: number;
};

export type PoolRequest = {
  id: string;
  group?: string;
  reuse?: boolean;
  size?: number;
  /** 0 or absent: the size. */
  max_size?: number;
  image?: string;
  init_image?: string;
  labels?: Record<string, string>;
  environment?: Record<string, string>;
  /** An array of Volumes as a JSON text. */
  volumes?: string;
  /** An array of VolumeMounts as a JSON text. */
  volume_mounts?: string;
  resources: PoolRequestResources;
  /** An Affinity as a JSON text. */
  affinities?: string;
  node_selector?: Record<string, string>;
  runtime_class_name?: string;
  /** An array of Tolerations as a JSON text. */
  tolerations?: string;
  /** A HorizontalPodAutoscalerSpec as a JSON text. */
  horizontal_pod_autoscaler_spec?: string;
  /** An array of TopologySpreadConstraints as a JSON text. */
  topology_spread_constraints?: string;
  /** Seconds; 0: the default. */
  pod_pending_duration_threshold?: number;
  idle_recycle_time?: PoolRequestIdleRecycleTime;
};

export type PoolRequestIdleRecycleTime = {
  /** Seconds; -1: never, 0: not configured. */
  reserved?: number;
  /** Seconds; -1: never, 0: not configured. */
  scaled?: number;
};

export type PoolRequestResources = {
  /** cpu as `500m`, memory as `512Mi` or `1Gi`. */
  requests: Record<string, string>;
  limits: Record<string, string>;
};

export type PoolResources = {
  requests: Record<string, string>;
  limits: Record<string, string>;
};

export type PortMapping = {
  protocol: "tcp" | "udp";
  container_port: number;
  host_ip: string;
  host_port: number;
};

export type PublishFunctionRequest = {
  /** The latest one. */
  revisionId: string;
  /** Empty or absent: made from the time. */
  versionNumber?: string;
  versionDesc?: string;
  /** If sent, the function’s own. */
  kind?: "" | "agent" | "faas" | "yrlib" | "custom";
};

export type PutCallRecordingResponse = {
  code: 200;
  recording: CallRecording;
};

export type PutSecretRequest = {
  /** What the code sees. Nobody reads it back. */
  value: string;
};

export type PutSecretResponse = {
  code: 200;
  secret: Secret;
};

export type RegisterFunctionRequest = {
  /** `0@{service}@{funcName}`, such as `0@demo@hello` */
  name: string;
  kind?: "" | "agent" | "faas" | "yrlib" | "custom";
  /** `python3.11`, `nodejs22`, `go`, `java17` … */
  runtime: string;
  /** 1/1000 core */
  cpu: number;
  /** MB */
  memory: number;
  /** Seconds. */
  timeout?: number;
  /** `module.function`; required for kind faas. */
  handler?: string;
  /** The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`. */
  httpProfile?: "" | "http" | "functions-framework" | "agentcore" | "sagemaker" | "cloud-run";
  environment?: Record<string, string | SecretReference>;
  description?: string;
  /** Required for kind faas. `package`: a code package. */
  storageType?: "" | "local" | "s3" | "copy" | "package";
  /** A directory of the host; with `storageType: package`, `code://<sha256>`. */
  codePath?: string;
  /** `auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing. */
  dependencies?: "" | "none" | "auto";
  s3CodePath?: S3CodePath;
  extendedHandler?: FunctionHooks;
  extendedTimeout?: FunctionHookTimeouts;
  /** Empty: the default executor. */
  sandboxType?: "" | "docker" | "supervisor" | "kubernetes";
  rootfs?: FunctionRootfs;
  minInstance?: number | string;
  maxInstance?: number | string;
  concurrentNum?: number | string;
  customResources?: Record<string, number>;
  tags?: Record<string, string>;
  /** With runtime `lambda`: code packages (`code://<sha256>`) whose files are below `/opt`. Others store it. */
  layers?: unknown[];
  /** Values of any shape, at most 100 levels deep. */
  device?: Record<string, unknown>;
  poolId?: string;
  /** Seconds. */
  idleTime?: number;
  autoScaleConfig?: AutoScaleConfig;
  /** Values of any shape, at most 100 levels deep. */
  schedulePolicies?: unknown[];
  enableSessionCtx?: boolean;
  enableAgentSession?: boolean;
  isFuncPublic?: boolean;
  expose?: FunctionExpose;
  /** The JSON Schema of the event; `{}`: none. With it and a description, the function is a tool of the MCP server. */
  inputSchema?: Record<string, unknown>;
  /** Events that do not fit `inputSchema` are refused before the call. */
  validateInput?: boolean;
};

export type RerunJobResponse = {
  job_id: string;
  submission_id: string;
};

export type ReservedInstances = {
  clusterId?: string;
  minInstance?: number | string;
  maxInstance?: number | string;
};

export type ReservedInstancesAnswer = {
  code: 0;
  message: "";
  instanceConfigInfos: StoredReservedInstances[];
  reserveInsBaseInfo: ReservedInstancesAnswerReserveInsBaseInfo;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type ReservedInstancesAnswerReserveInsBaseInfo = {
  funcName: string;
  version: string;
  instanceLabel: string;
};

export type ReservedInstancesRequest = {
  /** `0@{service}@{funcName}`, such as `0@demo@hello`, or a URN of the function; the version of a URN must be `version`. */
  funcName: string;
  version: string;
  instanceLabel: string;
  /** Each cluster once. */
  instanceConfigInfos: ReservedInstances[];
};

export type RestartPolicy = {
  /** `on-failure`: unless it ended with exit code 0. `always`: however it ended. */
  policy: "never" | "on-failure" | "always";
  /** In a row; absent: 5 for `on-failure`, no bound for `always`. */
  max_restarts?: number;
  /** Before the first restart in a row; doubled for each further one, up to 300 s. */
  backoff_seconds?: number;
};

export type ResumeAgentResponse = {
  code: 200;
  /** false: it was running. */
  resumed: boolean;
  instance: Agent;
};

export type RunCodeRequest = {
  code: string;
  /** `python` (default), or `javascript` where Node.js exists. */
  language?: string;
  /** A context of the interpreter, instead of a language. */
  context_id?: string;
  /** Variables for this cell in addition to others. */
  env_vars?: Record<string, string>;
};

/** `pip` is a list of requirements, or an object with `packages`, `pip_check`, `pip_version` and `pip_install_options`; docs/guides/jobs.md says more. Other keys are kept and ignored. */
export type RuntimeEnv = {
  env_vars?: Record<string, string | SecretReference> | null;
  working_dir?: string | null;
  py_modules?: string[] | null;
  /** Refused: it cannot be honoured here. */
  conda?: null;
  /** Refused: it cannot be honoured here. */
  container?: null;
  /** Refused: it cannot be honoured here. */
  image_uri?: null;
  /** Refused: it cannot be honoured here. */
  java_jars?: null;
  /** Refused: it cannot be honoured here. */
  mpi?: null;
  /** Refused: it cannot be honoured here. */
  nsight?: null;
  /** Refused: it cannot be honoured here. */
  py_executable?: null;
  /** Refused: it cannot be honoured here. */
  rocprof_sys?: null;
  /** Refused: it cannot be honoured here. */
  uv?: null;
  /** Refused: it cannot be honoured here. */
  worker_process_setup_hook?: null;
};

export type RuntimeHooks = {
  /** `module.function`, once at the start. */
  initializer?: string;
  /** `module.function`, once at the end. */
  pre_stop?: string;
  /** `module.function`, for each alarm of a durable agent; without it the handler. */
  alarm?: string;
  /** `module.function`, before a durable agent falls asleep; at most 5 s. */
  sleep?: string;
};

export type RuntimeRootfs = {
  /** May be empty only where instances are pods: then it is the image of the pod that fits. */
  imageurl: string;
  /** Empty: root. */
  user?: string;
  ports?: string[];
};

export type RuntimeSpec = {
  runtime: string;
  rootfs: RuntimeRootfs;
  /** Empty: the default executor. */
  sandbox_type?: "" | "docker" | "supervisor" | "kubernetes";
  /** Code directory inside the sandbox; a mount has to bring it. */
  codePath?: string;
  /** `module.function` */
  handler?: string;
  /** The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`. */
  httpProfile?: "" | "http" | "functions-framework" | "agentcore" | "sagemaker" | "cloud-run";
  /** `auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing. */
  dependencies?: "" | "none" | "auto";
  extendedHandler?: RuntimeHooks;
  /** 1/1000 core */
  cpu?: number;
  /** MB */
  memory?: number;
};

export type S3CodePath = {
  bucketId?: string;
  objectId?: string;
  bucketUrl?: string;
  /** In no answer. */
  token?: string;
  sha512?: string;
};

export type ScheduleCreated = {
  schedule_id: string;
  cron: string;
  timezone: string;
  overlap: "skip" | "allow";
  job: Record<string, unknown>;
  create_time: string;
  next_run_time: string | null;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type Secret = {
  name: string;
  created_at: string;
  /** When its value was last written. */
  updated_at: string;
  /** Whether this service has the key that it is encrypted with. */
  readable: boolean;
};

/** The value of a secret, which is looked up when a sandbox starts. */
export type SecretReference = {
  secret: string;
};

export type Session = {
  /** False: every caller is a developer of every tenant. */
  authentication: boolean;
  /** null: any; the header `X-Tenant-Id` says which. */
  tenant: string | null;
  role: "viewer" | "user" | "developer";
  /** Whether the numbers, replicas and settings of the whole service are shown. */
  sees_service: boolean;
  version: string;
};

export type SessionAnswer = {
  message: string;
};

export type SetAgentAlarmRequest = {
  /** Once, at this time: RFC 3339, or milliseconds since 1970. A past time is due now. */
  at?: string | number;
  /** Once, this many seconds from now. */
  after?: number;
  /** Again and again after this many seconds; first after one interval. */
  every?: number;
  /** Again and again, at the times of five fields of cron. */
  cron?: string;
  /** With `cron`: the zone, for example `Europe/Berlin`. Default: UTC. */
  tz?: string;
  /** What the agent gets: JSON of at most 16 KiB. */
  payload?: unknown;
  /** It is dropped if it cannot be delivered within this time. Default: it is delivered late. */
  max_late_seconds?: number;
};

export type SetAgentAlarmResponse = {
  code: 200;
  alarm: ListAgentAlarmsResponseItem;
};

export type SetAgentTtlRequest = {
  /** From now; for a paused agent from its resume. 0: it lives until it is deleted. */
  ttl_seconds: number;
  /** Never moves the end to an earlier time. */
  only_later?: boolean;
};

export type Setting = {
  name: string;
  value: unknown;
  is_default: boolean;
  /** `default`, or where it was given: `--port`, `environment variable ROOKERY_PORT`, `rookery.yaml:3`. */
  source: string;
  doc: string;
};

export type SignalProcessRequest = {
  /** Name of a signal, such as `SIGKILL`. */
  signal?: string;
};

export type SignalProcessResponse = {
  code: 200;
};

export type StartProcessRequest = {
  /** A text is run by `/bin/sh -c`, a list is an argument vector. */
  command: string | string[];
  /** Default: the working directory of the sandbox. */
  working_dir?: string;
  env?: Record<string, string>;
  /** An account inside; default: the user of the sandbox. */
  user?: string;
  /** A name by which it can be selected like by its pid. */
  tag?: string;
  /** Opens a standard input; otherwise it is empty. */
  stdin?: boolean;
  /** With a terminal. */
  tty?: boolean;
  cols?: number;
  rows?: number;
  /** Seconds after which the process is killed; 0: never. */
  timeout?: number;
};

export type StartProcessResponse = {
  code: 200;
  /** Inside the sandbox. */
  pid: number;
};

export type StatFileResponse = {
  code: 200;
  file: FileFacts;
};

export type StopJobResponse = {
  stopped: boolean;
};

export type StoredAutoScaleConfig = {
  slaQuota: number;
  scaleDownTime: number;
  burstScaleNum: number;
};

export type StoredFunctionHookTimeouts = {
  initializer: number;
  pre_stop: number;
};

export type StoredFunctionRootfs = {
  type: string;
  imageurl: string;
  user: string;
  ports: string[];
  path: string;
  readonly: boolean;
  mounts: StoredMount[];
};

export type StoredMount = {
  source: string;
  target: string;
  readonly: boolean;
};

export type StoredReservedInstances = {
  clusterId: string;
  minInstance: number;
  maxInstance: number;
};

export type StoredRestartPolicy = {
  policy: "never" | "on-failure" | "always";
  max_restarts?: number | null;
  backoff_seconds?: number;
};

export type StoredS3CodePath = {
  bucketId: string;
  objectId: string;
  bucketUrl: string;
  sha512: string;
};

export type StoredSecretReference = {
  secret: string;
};

export type SubmitJobResponse = {
  job_id: string;
  submission_id: string;
  /** Fields of the body that were ignored, and what else the caller should know. */
  warnings?: string[];
};

export type UpdateAgentError409 = {
  code: 409;
  message: string;
  /** What uses it: `call 2`, `access 1`, `save 1`. Only of an agent in use. */
  awake_because?: string[];
};

export type UpdateAgentRequest = {
  runtime_spec?: UpdateAgentRequestRuntimeSpec;
  /** Another version of the registered function; excludes `runtime_spec`. */
  urn?: string;
  /** All variables of the caller. */
  env_vars?: Record<string, string | SecretReference>;
  /** All mounts of the caller, also that of the code. */
  mounts?: Mount[];
  expose?: UpdateAgentRequestExpose;
  /** null: `never`. */
  restart_policy?: "never" | "on-failure" | "always" | RestartPolicy;
  /** Its idle time, and its files. */
  durable?: boolean | CreateAgentRequestDurable;
};

/** null: it loses its address. */
export type UpdateAgentRequestExpose = {
  /** A TCP port on 127.0.0.1 inside the sandbox. */
  port: number;
  /** Who may come: `token`, `link` (a token or a signed link), `public`. */
  access?: "token" | "link" | "public";
};

export type UpdateAgentRequestRuntimeSpec = {
  runtime?: string;
  /** Code directory inside the sandbox; a mount has to bring it. */
  codePath?: string;
  /** `module.function` */
  handler?: string;
  /** The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`. */
  httpProfile?: "" | "http" | "functions-framework" | "agentcore" | "sagemaker" | "cloud-run";
  /** `auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing. */
  dependencies?: "" | "none" | "auto";
  /** 1/1000 core */
  cpu?: number;
  /** MB */
  memory?: number;
  extendedHandler?: UpdateAgentRequestRuntimeSpecExtendedHandler;
  rootfs?: UpdateAgentRequestRuntimeSpecRootfs;
};

/** Empty: there is none. */
export type UpdateAgentRequestRuntimeSpecExtendedHandler = {
  /** `module.function`, once at the start. */
  initializer?: string;
  /** `module.function`, once at the end. */
  pre_stop?: string;
  /** `module.function`, for each alarm of a durable agent; without it the handler. */
  alarm?: string;
  /** `module.function`, before a durable agent falls asleep; at most 5 s. */
  sleep?: string;
};

export type UpdateAgentRequestRuntimeSpecRootfs = {
  /** May be empty only where instances are pods: then it is the image of the pod that fits. */
  imageurl?: string;
  /** Empty: root. */
  user?: string;
  ports?: string[];
};

export type UpdateFunctionRequest = {
  /** The latest one. */
  revisionId: string;
  /** If sent, the function’s own. */
  name?: string;
  /** If sent, the function’s own. */
  kind?: "" | "agent" | "faas" | "yrlib" | "custom";
  /** If sent, the function’s own. */
  runtime?: string;
  /** 1/1000 core */
  cpu?: number;
  /** MB */
  memory?: number;
  /** Seconds. */
  timeout?: number;
  /** `module.function`; required for kind faas. */
  handler?: string;
  /** The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`. */
  httpProfile?: "" | "http" | "functions-framework" | "agentcore" | "sagemaker" | "cloud-run";
  environment?: Record<string, string | SecretReference>;
  description?: string;
  /** Required for kind faas. `package`: a code package. */
  storageType?: "" | "local" | "s3" | "copy" | "package";
  /** A directory of the host; with `storageType: package`, `code://<sha256>`. */
  codePath?: string;
  /** `auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing. */
  dependencies?: "" | "none" | "auto";
  s3CodePath?: S3CodePath;
  extendedHandler?: FunctionHooks;
  extendedTimeout?: FunctionHookTimeouts;
  /** Empty: the default executor. */
  sandboxType?: "" | "docker" | "supervisor" | "kubernetes";
  rootfs?: FunctionRootfs;
  minInstance?: number | string;
  maxInstance?: number | string;
  concurrentNum?: number | string;
  customResources?: Record<string, number>;
  tags?: Record<string, string>;
  /** With runtime `lambda`: code packages (`code://<sha256>`) whose files are below `/opt`. Others store it. */
  layers?: unknown[];
  /** Values of any shape, at most 100 levels deep. */
  device?: Record<string, unknown>;
  poolId?: string;
  /** Seconds. */
  idleTime?: number;
  autoScaleConfig?: AutoScaleConfig;
  /** Values of any shape, at most 100 levels deep. */
  schedulePolicies?: unknown[];
  enableSessionCtx?: boolean;
  enableAgentSession?: boolean;
  isFuncPublic?: boolean;
  expose?: FunctionExpose;
  /** The JSON Schema of the event; `{}`: none. With it and a description, the function is a tool of the MCP server. */
  inputSchema?: Record<string, unknown>;
  /** Events that do not fit `inputSchema` are refused before the call. */
  validateInput?: boolean;
};

export type UpdatePoolRequest = {
  size?: number;
  max_size?: number;
  /** A HorizontalPodAutoscalerSpec as a JSON text. */
  horizontal_pod_autoscaler_spec?: string;
};

export type UploadFileRequest = {
  /** Where it is to be. Ends it in `/` or is a directory there, the name of the file is added. */
  path: string;
  /** Permission bits in octal; default those of the file that is there, else `644`. */
  mode?: string;
  /** At most 536870912 bytes. */
  file: string;
};

export type UploadFileResponse = {
  code: 200;
  path: string;
  size: number;
};

export type WakeAgentResponse = {
  code: 200;
  /** false: it was running. */
  woken: boolean;
  instance: Agent;
};

export type WasDeleted = {
  deleted: true;
};

export interface Operations {
  invokeAgent: {
    params: { instanceId: string };
    query: object;
    body: unknown;
    answer: InvokeAgentResponse;
  };
  createAgent: {
    params: object;
    query: object;
    body: CreateAgentRequest;
    answer: AgentStarted;
  };
  listAgents: {
    params: object;
    query: { namespace?: string | undefined; name?: string | undefined; status?: "CREATING" | "RUNNING" | "STOPPING" | "FAILED" | "PAUSED" | "SLEEPING" | undefined; label?: string[] | undefined; template?: string | undefined; limit?: number | undefined; cursor?: string | undefined };
    body: undefined;
    answer: ListAgentsResponse;
  };
  getAgent: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: GetAgentResponse;
  };
  deleteAgent: {
    params: { instanceId: string };
    query: { grace?: number | undefined };
    body: undefined;
    answer: Deleted;
  };
  updateAgent: {
    params: { instanceId: string };
    query: { apply?: "now" | undefined };
    body: UpdateAgentRequest;
    answer: GetAgentResponse;
  };
  setAgentTtl: {
    params: { instanceId: string };
    query: object;
    body: SetAgentTtlRequest;
    answer: GetAgentResponse;
  };
  pauseAgent: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: GetAgentResponse;
  };
  resumeAgent: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: ResumeAgentResponse;
  };
  sleepAgent: {
    params: { instanceId: string };
    query: { wait?: number | undefined; force?: boolean | undefined };
    body: undefined;
    answer: GetAgentResponse;
  };
  wakeAgent: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: WakeAgentResponse;
  };
  listAgentAlarms: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: ListAgentAlarmsResponseItem[];
  };
  setAgentAlarm: {
    params: { instanceId: string; name: string };
    query: object;
    body: SetAgentAlarmRequest;
    answer: SetAgentAlarmResponse;
  };
  cancelAgentAlarm: {
    params: { instanceId: string; name: string };
    query: object;
    body: undefined;
    answer: CancelAgentAlarmResponse;
  };
  exportAgent: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: unknown;
  };
  importAgent: {
    params: object;
    query: { namespace?: string | undefined; name?: string | undefined };
    body: undefined;
    answer: ImportAgentResponse;
  };
  restartAgent: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: AgentStarted;
  };
  agentLogs: {
    params: { instanceId: string };
    query: { tail?: number | undefined; since?: string | undefined; until?: string | undefined; follow?: boolean | undefined; previous?: number | undefined };
    body: undefined;
    answer: unknown;
  };
  agentExec: {
    params: { instanceId: string };
    query: object;
    body: AgentExecRequest;
    answer: AgentExecResponse;
  };
  openExec: {
    params: { instanceId: string };
    query: { tty?: boolean | undefined; cols?: number | undefined; rows?: number | undefined; working_dir?: string | undefined; command?: string | undefined; env?: string | undefined };
    body: undefined;
    answer: unknown;
  };
  downloadFile: {
    params: { instanceId: string };
    query: { path?: string | undefined };
    body: undefined;
    answer: unknown;
  };
  listFiles: {
    params: { instanceId: string };
    query: { path?: string | undefined; max_depth?: number | undefined; recursive?: boolean | undefined };
    body: undefined;
    answer: ListFilesResponse;
  };
  makeDirectory: {
    params: { instanceId: string };
    query: { path?: string | undefined; mode?: string | undefined; recursive?: boolean | undefined };
    body: undefined;
    answer: MakeDirectoryResponse;
  };
  statFile: {
    params: { instanceId: string };
    query: { path?: string | undefined; user?: string | undefined };
    body: undefined;
    answer: StatFileResponse;
  };
  renameFile: {
    params: { instanceId: string };
    query: { from?: string | undefined; to?: string | undefined; user?: string | undefined };
    body: undefined;
    answer: StatFileResponse;
  };
  removeFile: {
    params: { instanceId: string };
    query: { path?: string | undefined; user?: string | undefined };
    body: undefined;
    answer: MakeDirectoryResponse;
  };
  watchFiles: {
    params: { instanceId: string };
    query: { path?: string | undefined; user?: string | undefined; recursive?: boolean | undefined; facts?: boolean | undefined };
    body: undefined;
    answer: unknown;
  };
  startProcess: {
    params: { instanceId: string };
    query: object;
    body: StartProcessRequest;
    answer: StartProcessResponse;
  };
  listProcesses: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: ListProcessesResponse;
  };
  signalProcess: {
    params: { instanceId: string; process: string };
    query: object;
    body: SignalProcessRequest;
    answer: SignalProcessResponse;
  };
  attachProcess: {
    params: { instanceId: string; process: string };
    query: object;
    body: undefined;
    answer: unknown;
  };
  agentStats: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: AgentStatsResponse;
  };
  forkAgent: {
    params: { instanceId: string };
    query: object;
    body: ForkAgentRequest;
    answer: AgentFork[];
  };
  uploadFile: {
    params: { instanceId: string };
    query: object;
    body: undefined;
    answer: UploadFileResponse;
  };
  openTunnel: {
    params: object;
    query: { instance?: string | undefined; port?: number | undefined; half_close?: boolean | undefined };
    body: undefined;
    answer: unknown;
  };
  linkAgent: {
    params: { instanceId: string };
    query: object;
    body: LinkRequest;
    answer: Link;
  };
  linkFunction: {
    params: { urn: string };
    query: object;
    body: LinkRequest;
    answer: Link;
  };
  createApiKey: {
    params: object;
    query: object;
    body: CreateApiKeyRequest;
    answer: CreateApiKeyResponse;
  };
  listApiKeys: {
    params: object;
    query: object;
    body: undefined;
    answer: ListApiKeysResponse;
  };
  deleteApiKey: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: Deleted;
  };
  runCode: {
    params: { instanceId: string };
    query: object;
    body: RunCodeRequest;
    answer: unknown;
  };
  invokeFunction: {
    params: { urn: string };
    query: object;
    body: unknown;
    answer: unknown;
  };
  invokeFunctionShort: {
    params: { tenant: string; service: string; function: string };
    query: object;
    body: unknown;
    answer: unknown;
  };
  getAsyncResult: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: CallResult;
  };
  endSession: {
    params: { urn: string; sessionId: string };
    query: object;
    body: undefined;
    answer: SessionAnswer;
  };
  interruptSession: {
    params: { urn: string; sessionId: string };
    query: object;
    body: undefined;
    answer: SessionAnswer;
  };
  listFunctionInstances: {
    params: { urn: string };
    query: object;
    body: undefined;
    answer: ListFunctionInstancesResponse;
  };
  functionStats: {
    params: { urn: string };
    query: object;
    body: undefined;
    answer: FunctionStatsResponse;
  };
  readFunctionLogs: {
    params: { urn: string };
    query: { instance?: string | undefined; tail?: number | undefined; since?: string | undefined; until?: string | undefined; follow?: boolean | undefined };
    body: undefined;
    answer: unknown;
  };
  createAwsKey: {
    params: object;
    query: object;
    body: CreateAwsKeyRequest;
    answer: CreateAwsKeyResponse;
  };
  listAwsKeys: {
    params: object;
    query: object;
    body: undefined;
    answer: ListAwsKeysResponse;
  };
  deleteAwsKey: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: Deleted;
  };
  getCode: {
    params: { sha256: string };
    query: object;
    body: undefined;
    answer: CodePackageAnswer;
  };
  deleteCode: {
    params: { sha256: string };
    query: object;
    body: undefined;
    answer: Deleted;
  };
  putCode: {
    params: { sha256: string };
    query: object;
    body: undefined;
    answer: CodePackageAnswer;
  };
  listCode: {
    params: object;
    query: { limit?: number | undefined; cursor?: string | undefined };
    body: undefined;
    answer: ListCodeResponse;
  };
  createBuild: {
    params: object;
    query: object;
    body: CreateBuildRequest;
    answer: CreateBuildResponse;
  };
  listBuilds: {
    params: object;
    query: { limit?: number | undefined };
    body: undefined;
    answer: ListBuildsResponse;
  };
  getBuild: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: GetBuildResponse;
  };
  getBuildLogs: {
    params: { id: string };
    query: { tail?: number | undefined; follow?: boolean | undefined };
    body: undefined;
    answer: unknown;
  };
  putSecret: {
    params: { name: string };
    query: object;
    body: PutSecretRequest;
    answer: PutSecretResponse;
  };
  deleteSecret: {
    params: { name: string };
    query: object;
    body: undefined;
    answer: Deleted;
  };
  listSecrets: {
    params: object;
    query: object;
    body: undefined;
    answer: ListSecretsResponse;
  };
  putCallRecording: {
    params: object;
    query: object;
    body: CallRecordingRequest;
    answer: PutCallRecordingResponse;
  };
  listCallRecordings: {
    params: object;
    query: object;
    body: undefined;
    answer: ListCallRecordingsResponse;
  };
  deleteCallRecording: {
    params: object;
    query: { agent?: string | undefined; function?: string | undefined };
    body: undefined;
    answer: Deleted;
  };
  listCalls: {
    params: object;
    query: { agent?: string | undefined; function?: string | undefined; outcome?: "ok" | "error" | undefined; trace_id?: string | undefined; parent?: string | undefined; after?: string | undefined; before?: string | undefined; text?: string | undefined; limit?: number | undefined; cursor?: string | undefined; follow?: string | undefined };
    body: undefined;
    answer: ListCallsResponse;
  };
  getCall: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: GetCallResponse;
  };
  getCluster: {
    params: object;
    query: object;
    body: undefined;
    answer: Cluster;
  };
  followEvents: {
    params: object;
    query: { types?: string | undefined; agent?: string | undefined; function?: string | undefined; job?: string | undefined; recent?: number | undefined; follow?: boolean | undefined; metrics?: boolean | undefined };
    body: undefined;
    answer: unknown;
  };
  getMetricsHistory: {
    params: object;
    query: { range?: "15m" | "1h" | "6h" | "24h" | undefined; agent?: string | undefined; function?: string | undefined; node?: string | undefined };
    body: undefined;
    answer: GetMetricsHistoryResponse;
  };
  getUsage: {
    params: object;
    query: { of?: "agents" | "functions" | undefined };
    body: undefined;
    answer: GetUsageResponse;
  };
  getSettings: {
    params: object;
    query: object;
    body: undefined;
    answer: GetSettingsResponse;
  };
  getFindings: {
    params: object;
    query: object;
    body: undefined;
    answer: GetFindingsResponse;
  };
  getSession: {
    params: object;
    query: object;
    body: undefined;
    answer: Session;
  };
  login: {
    params: object;
    query: object;
    body: LoginRequest;
    answer: Session;
  };
  logout: {
    params: object;
    query: object;
    body: undefined;
    answer: LogoutResponse;
  };
  makeLoginLink: {
    params: object;
    query: object;
    body: undefined;
    answer: MakeLoginLinkResponse;
  };
  getJobApiVersion: {
    params: object;
    query: object;
    body: undefined;
    answer: GetJobApiVersionResponse;
  };
  submitJob: {
    params: object;
    query: object;
    body: JobRequest;
    answer: SubmitJobResponse;
  };
  listJobs: {
    params: object;
    query: object;
    body: undefined;
    answer: Job[];
  };
  getJob: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: Job;
  };
  deleteJob: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: WasDeleted;
  };
  stopJob: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: StopJobResponse;
  };
  rerunJob: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: RerunJobResponse;
  };
  getJobLogs: {
    params: { id: string };
    query: { follow?: boolean | undefined };
    body: undefined;
    answer: GetJobLogsResponse;
  };
  createJobSchedule: {
    params: object;
    query: object;
    body: CreateJobScheduleRequest;
    answer: ScheduleCreated;
  };
  listJobSchedules: {
    params: object;
    query: object;
    body: undefined;
    answer: JobSchedule[];
  };
  getJobSchedule: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: JobSchedule;
  };
  putJobSchedule: {
    params: { id: string };
    query: object;
    body: CreateJobScheduleRequest;
    answer: ScheduleCreated;
  };
  deleteJobSchedule: {
    params: { id: string };
    query: object;
    body: undefined;
    answer: WasDeleted;
  };
  getPackage: {
    params: { protocol: string; name: string };
    query: object;
    body: undefined;
    answer: unknown;
  };
  putPackage: {
    params: { protocol: string; name: string };
    query: object;
    body: undefined;
    answer: unknown;
  };
  registerFunction: {
    params: object;
    query: object;
    body: RegisterFunctionRequest;
    answer: FunctionRegistered | MetaRefusal;
  };
  listFunctions: {
    params: object;
    query: { versionNumber?: string | undefined; name?: string | undefined; pageIndex?: number | undefined; pageSize?: number | undefined };
    body: undefined;
    answer: ListFunctionsResponse | MetaRefusal;
  };
  getFunction: {
    params: { name: string };
    query: { versionNumber?: string | undefined };
    body: undefined;
    answer: FunctionAnswer | MetaRefusal;
  };
  updateFunction: {
    params: { name: string };
    query: object;
    body: UpdateFunctionRequest;
    answer: FunctionAnswer | MetaRefusal;
  };
  deleteFunction: {
    params: { name: string };
    query: { versionNumber?: string | undefined };
    body: undefined;
    answer: DeleteFunctionResponse | MetaRefusal;
  };
  listVersions: {
    params: { name: string };
    query: { pageIndex?: number | undefined; pageSize?: number | undefined };
    body: undefined;
    answer: ListVersionsResponse | MetaRefusal;
  };
  publishFunction: {
    params: { name: string };
    query: object;
    body: PublishFunctionRequest;
    answer: FunctionAnswer | MetaRefusal;
  };
  createReservedInstances: {
    params: object;
    query: object;
    body: ReservedInstancesRequest;
    answer: ReservedInstancesAnswer | MetaRefusal;
  };
  updateReservedInstances: {
    params: object;
    query: object;
    body: ReservedInstancesRequest;
    answer: ReservedInstancesAnswer | MetaRefusal;
  };
  listReservedInstances: {
    params: object;
    query: { funcName?: string | undefined; version?: string | undefined; instanceLabel?: string | undefined };
    body: undefined;
    answer: ListReservedInstancesResponse | MetaRefusal;
  };
  deleteReservedInstances: {
    params: object;
    query: { funcName?: string | undefined; version?: string | undefined; instanceLabel?: string | undefined };
    body: DeleteReservedInstancesRequest;
    answer: MetaAnswer | MetaRefusal;
  };
  createPools: {
    params: object;
    query: object;
    body: CreatePoolsRequest;
    answer: CreatePoolsResponse | CreatePoolsResponse2;
  };
  listPools: {
    params: object;
    query: { id?: string | undefined; group?: string | undefined; limit?: number | undefined; offset?: number | undefined };
    body: undefined;
    answer: ListPoolsResponse | MetaRefusal;
  };
  deletePools: {
    params: object;
    query: { id?: string | undefined; group?: string | undefined };
    body: undefined;
    answer: MetaAnswer | MetaRefusal;
  };
  updatePool: {
    params: { id: string };
    query: object;
    body: UpdatePoolRequest;
    answer: MetaAnswer | MetaRefusal;
  };
}

export const PATHS: Readonly<Record<keyof Operations, readonly [method: string, path: string]>> = {
  invokeAgent: ['POST', '/api/agent/{instanceId}/invoke'],
  createAgent: ['POST', '/api/agent'],
  listAgents: ['GET', '/api/agent'],
  getAgent: ['GET', '/api/agent/{instanceId}'],
  deleteAgent: ['DELETE', '/api/agent/{instanceId}'],
  updateAgent: ['PATCH', '/api/agent/{instanceId}'],
  setAgentTtl: ['PUT', '/api/agent/{instanceId}/ttl'],
  pauseAgent: ['POST', '/api/agent/{instanceId}/pause'],
  resumeAgent: ['POST', '/api/agent/{instanceId}/resume'],
  sleepAgent: ['POST', '/api/agent/{instanceId}/sleep'],
  wakeAgent: ['POST', '/api/agent/{instanceId}/wake'],
  listAgentAlarms: ['GET', '/api/agent/{instanceId}/alarms'],
  setAgentAlarm: ['PUT', '/api/agent/{instanceId}/alarms/{name}'],
  cancelAgentAlarm: ['DELETE', '/api/agent/{instanceId}/alarms/{name}'],
  exportAgent: ['GET', '/api/agent/{instanceId}/export'],
  importAgent: ['POST', '/api/agent/import'],
  restartAgent: ['POST', '/api/agent/{instanceId}/restart'],
  agentLogs: ['GET', '/api/agent/{instanceId}/logs'],
  agentExec: ['POST', '/api/agent/{instanceId}/exec'],
  openExec: ['GET', '/api/agent/{instanceId}/exec'],
  downloadFile: ['GET', '/api/agent/{instanceId}/files/download'],
  listFiles: ['GET', '/api/agent/{instanceId}/files/list'],
  makeDirectory: ['POST', '/api/agent/{instanceId}/files/mkdir'],
  statFile: ['GET', '/api/agent/{instanceId}/files/stat'],
  renameFile: ['POST', '/api/agent/{instanceId}/files/rename'],
  removeFile: ['DELETE', '/api/agent/{instanceId}/files'],
  watchFiles: ['GET', '/api/agent/{instanceId}/files/watch'],
  startProcess: ['POST', '/api/agent/{instanceId}/processes'],
  listProcesses: ['GET', '/api/agent/{instanceId}/processes'],
  signalProcess: ['POST', '/api/agent/{instanceId}/processes/{process}/signal'],
  attachProcess: ['GET', '/api/agent/{instanceId}/processes/{process}/attach'],
  agentStats: ['GET', '/api/agent/{instanceId}/stats'],
  forkAgent: ['POST', '/api/agent/{instanceId}/fork'],
  uploadFile: ['POST', '/api/agent/{instanceId}/files/upload'],
  openTunnel: ['GET', '/serverless/v1/ws'],
  linkAgent: ['POST', '/api/agent/{instanceId}/link'],
  linkFunction: ['POST', '/serverless/v1/functions/{urn}/link'],
  createApiKey: ['POST', '/api/e2b/keys'],
  listApiKeys: ['GET', '/api/e2b/keys'],
  deleteApiKey: ['DELETE', '/api/e2b/keys/{id}'],
  runCode: ['POST', '/api/agent/{instanceId}/code'],
  invokeFunction: ['POST', '/serverless/v1/functions/{urn}/invocations'],
  invokeFunctionShort: ['POST', '/invocations/{tenant}/{service}/{function}/'],
  getAsyncResult: ['GET', '/serverless/v1/functions/async-results/{id}'],
  endSession: ['DELETE', '/serverless/v1/functions/{urn}/sessions/{sessionId}'],
  interruptSession: ['POST', '/serverless/v1/functions/{urn}/sessions/{sessionId}/interrupt'],
  listFunctionInstances: ['GET', '/serverless/v1/functions/{urn}/instances'],
  functionStats: ['GET', '/serverless/v1/functions/{urn}/stats'],
  readFunctionLogs: ['GET', '/serverless/v1/functions/{urn}/logs'],
  createAwsKey: ['POST', '/api/aws/keys'],
  listAwsKeys: ['GET', '/api/aws/keys'],
  deleteAwsKey: ['DELETE', '/api/aws/keys/{id}'],
  getCode: ['GET', '/api/code/{sha256}'],
  deleteCode: ['DELETE', '/api/code/{sha256}'],
  putCode: ['PUT', '/api/code/{sha256}'],
  listCode: ['GET', '/api/code'],
  createBuild: ['POST', '/api/builds'],
  listBuilds: ['GET', '/api/builds'],
  getBuild: ['GET', '/api/builds/{id}'],
  getBuildLogs: ['GET', '/api/builds/{id}/logs'],
  putSecret: ['PUT', '/api/secrets/{name}'],
  deleteSecret: ['DELETE', '/api/secrets/{name}'],
  listSecrets: ['GET', '/api/secrets'],
  putCallRecording: ['PUT', '/api/recordings'],
  listCallRecordings: ['GET', '/api/recordings'],
  deleteCallRecording: ['DELETE', '/api/recordings'],
  listCalls: ['GET', '/api/calls'],
  getCall: ['GET', '/api/calls/{id}'],
  getCluster: ['GET', '/api/cluster'],
  followEvents: ['GET', '/api/events'],
  getMetricsHistory: ['GET', '/api/metrics/history'],
  getUsage: ['GET', '/api/metrics/usage'],
  getSettings: ['GET', '/api/settings'],
  getFindings: ['GET', '/api/doctor'],
  getSession: ['GET', '/api/session'],
  login: ['POST', '/api/session'],
  logout: ['DELETE', '/api/session'],
  makeLoginLink: ['POST', '/api/session/links'],
  getJobApiVersion: ['GET', '/api/version'],
  submitJob: ['POST', '/api/jobs'],
  listJobs: ['GET', '/api/jobs'],
  getJob: ['GET', '/api/jobs/{id}'],
  deleteJob: ['DELETE', '/api/jobs/{id}'],
  stopJob: ['POST', '/api/jobs/{id}/stop'],
  rerunJob: ['POST', '/api/jobs/{id}/rerun'],
  getJobLogs: ['GET', '/api/jobs/{id}/logs'],
  createJobSchedule: ['POST', '/api/job_schedules'],
  listJobSchedules: ['GET', '/api/job_schedules'],
  getJobSchedule: ['GET', '/api/job_schedules/{id}'],
  putJobSchedule: ['PUT', '/api/job_schedules/{id}'],
  deleteJobSchedule: ['DELETE', '/api/job_schedules/{id}'],
  getPackage: ['GET', '/api/packages/{protocol}/{name}'],
  putPackage: ['PUT', '/api/packages/{protocol}/{name}'],
  registerFunction: ['POST', '/api/meta/serverless/v1/functions'],
  listFunctions: ['GET', '/api/meta/serverless/v1/functions'],
  getFunction: ['GET', '/api/meta/serverless/v1/functions/{name}'],
  updateFunction: ['PUT', '/api/meta/serverless/v1/functions/{name}'],
  deleteFunction: ['DELETE', '/api/meta/serverless/v1/functions/{name}'],
  listVersions: ['GET', '/api/meta/serverless/v1/functions/{name}/versions'],
  publishFunction: ['POST', '/api/meta/serverless/v1/functions/{name}/versions'],
  createReservedInstances: ['POST', '/api/meta/serverless/v1/functions/reserve-instance'],
  updateReservedInstances: ['PUT', '/api/meta/serverless/v1/functions/reserve-instance'],
  listReservedInstances: ['GET', '/api/meta/serverless/v1/functions/reserve-instance'],
  deleteReservedInstances: ['DELETE', '/api/meta/serverless/v1/functions/reserve-instance'],
  createPools: ['POST', '/api/meta/serverless/v1/podpools'],
  listPools: ['GET', '/api/meta/serverless/v1/podpools'],
  deletePools: ['DELETE', '/api/meta/serverless/v1/podpools'],
  updatePool: ['PUT', '/api/meta/serverless/v1/podpools/{id}'],
};

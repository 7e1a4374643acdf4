# Made by `npm run generate` from openapi/rookery.json.
from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Tuple, TypedDict, Union


class _Agent(TypedDict):
    instance_id: str
    namespace: str
    name: str
    tenant: str
    status: Literal["CREATING", "RUNNING", "STOPPING", "FAILED", "PAUSED", "SLEEPING"]
    sandbox_type: str
    sandbox_id: str
    node_id: str
    node_ip: str
    sandbox_ip: str
    runtime: str
    handler: str
    codePath: str
    rootfs: AgentRootfs
    ports: List[str]
    port_mappings: List[PortMapping]
    env_vars: Dict[str, Union[str, StoredSecretReference]]
    resources: AgentResources
    start_time: Union[str, None]
    restarts: int
    isolation: List[str]
    """The layers that hold: `mount`, `pid`, `cgroup.memory` …"""


class Agent(_Agent, total=False):
    status_reason: str
    """Why the agent is FAILED. For a RUNNING agent, why its state is unknown (its node does not answer)."""
    httpProfile: str
    extendedHandler: AgentExtendedHandler
    dependencies: str
    urn: str
    expose: AgentAddress
    restart_policy: StoredRestartPolicy
    restart_at: str
    """When its policy starts it again."""
    template: str
    """Only of a sandbox without code."""
    labels: Dict[str, str]
    expires_at: str
    """The end of its time to live, which does not run in a pause."""
    idle_seconds: float
    on_expiry: Literal["delete", "pause"]
    paused_at: str
    """Only of a PAUSED one."""
    durable: AgentDurable
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""
    load_error: str
    """Why its code could not be loaded."""


class AgentAddress(TypedDict):
    """Only of one that was created with it."""

    port: int
    access: Literal["token", "link", "public"]
    address: Union[str, None]
    """null: its tenant cannot stand in a host name."""
    path: str
    """At the service’s own host name."""


class _AgentDurable(TypedDict):
    schema: int
    state_bytes: int
    """Size of the saved state as JSON."""
    state_version: int
    """Number of saves."""
    wakes: int
    """Number of starts after the first."""
    sleep_after_seconds: float
    """Time without use until it sleeps; 0: only on request."""


class AgentDurable(_AgentDurable, total=False):
    """Only of a durable agent."""

    saved_at: str
    files: AgentDurableFiles
    next_alarm_at: str
    """Only with an alarm."""
    slept_at: str
    """Only of a SLEEPING one."""
    is_changed: bool
    """true: the next start takes the settings of this record."""


class AgentDurableFiles(TypedDict):
    """As asked."""

    path: str
    max_mb: int


class _AgentExecRequest(TypedDict):
    command: Union[str, List[str]]
    """A text is run by `/bin/sh -c`, a list is an argument vector."""


class AgentExecRequest(_AgentExecRequest, total=False):
    timeout: float
    """Seconds; at the end of them the whole process group ends."""
    working_dir: str
    env: Dict[str, str]
    stdin: str


class _AgentExecResponse(TypedDict):
    returncode: int
    """-1 at the timeout."""
    stdout: str
    stderr: str
    truncated: bool
    timed_out: bool
    """The time limit ended it; `returncode` is -1 then."""


class AgentExecResponse(_AgentExecResponse, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _AgentExpose(TypedDict):
    port: int
    """A TCP port on 127.0.0.1 inside the sandbox."""


class AgentExpose(_AgentExpose, total=False):
    """Gives a port an address of its own: docs/guides/addresses.md."""

    access: Literal["token", "link", "public"]
    """Who may come: `token`, `link` (a token or a signed link), `public`."""


class _AgentExtendedHandler(TypedDict):
    initializer: str
    pre_stop: str


class AgentExtendedHandler(_AgentExtendedHandler, total=False):
    alarm: str
    sleep: str


class AgentFork(TypedDict, total=False):
    instance_id: str
    name: str
    error: AgentForkError


class AgentForkError(TypedDict):
    """Why this fork did not start; the other members are absent then."""

    code: int
    """The status of such an error of a create."""
    message: str


class AgentResources(TypedDict):
    cpu: int
    memory: int


class AgentRootfs(TypedDict):
    type: Literal["host", "image"]
    imageurl: str
    user: str
    workspace: str
    mounts: List[StoredMount]


class _AgentStarted(TypedDict):
    code: Literal[200]
    instance_id: str


class AgentStarted(_AgentStarted, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _AgentStatsResponse(TypedDict):
    memory_bytes: int
    cpu_micros: int
    """Time on processors since the sandbox started."""
    processes: int


class AgentStatsResponse(_AgentStatsResponse, total=False):
    asleep: Literal[True]
    """Only of a SLEEPING agent, which uses nothing."""


class AutoScaleConfig(TypedDict, total=False):
    slaQuota: Union[Literal[0], Any]
    """Milliseconds; 0: not set."""
    scaleDownTime: int
    """Milliseconds."""
    burstScaleNum: int
    """Calls that may wait."""


class Build(TypedDict):
    id: str
    """The same content for the same runtime has the same."""
    status: Literal["BUILDING", "READY", "FAILED"]
    reason: str
    """Why it has failed."""
    tool: str
    """`pip`, `uv` or `npm`."""
    runtime: str
    started_at: str
    ended_at: Union[str, None]


class CallAccepted(TypedDict):
    requestId: str


class _CallDetails(TypedDict):
    id: str
    """The request id, which the handler sees as `request_id`."""
    kind: Literal["agent", "function"]
    instance_id: str
    """Empty when the call got no instance."""
    node_id: str
    mode: Literal["sync", "stream", "async", "lambda", "alarm"]
    tenant: str
    caller: str
    """The claim `name` of the token, else `jti`, or `alarm` and the name of the alarm; empty without either."""
    trace_id: str
    parent_id: Union[str, None]
    """The call whose handler made this one and passed its `traceparent` on; null when the history has none."""
    outcome: Literal["ok", "error"]
    error_code: Union[str, None]
    """The number of a failure, or the word of a failure of the service, or `cancelled`."""
    start_time: str
    duration_ms: float
    queue_ms: float
    place_ms: float
    start_ms: float
    load_ms: float
    run_ms: float
    input_bytes: int
    output_bytes: int
    spans: List[CallDetailsSpansItem]
    """Spans of the handler's code."""
    dropped_spans: int
    """Spans and attributes above a limit."""


class CallDetails(_CallDetails, total=False):
    agent_id: str
    """The `instance_id` of an agent."""
    name: str
    """`<namespace>/<name>` of an agent; empty when it was deleted early."""
    function: str
    """`0@<service>@<name>`"""
    version: str
    error: str
    """The text of a failure; viewers do not get it."""
    input: str
    """Its beginning, with hidden values replaced; not for viewers."""
    output: Union[str, None]
    """As `input`; null for a failure."""
    is_input_cut: bool
    is_output_cut: bool


class _CallDetailsSpansItem(TypedDict):
    name: str
    parent: Union[int, None]
    """Position of the span that contains this one; null: none."""
    start_ms: float
    """Since the handler started."""
    duration_ms: float
    outcome: Literal["ok", "error"]


class CallDetailsSpansItem(_CallDetailsSpansItem, total=False):
    attributes: Dict[str, Union[str, float, bool]]
    """Not for viewers."""
    error: str
    """The text of a failure; not for viewers."""


class CallError(TypedDict):
    code: int
    message: str


class CallFailed(TypedDict):
    code: Literal[500]
    data: None
    message: str


class _CallRecord(TypedDict):
    id: str
    """The request id, which the handler sees as `request_id`."""
    kind: Literal["agent", "function"]
    instance_id: str
    """Empty when the call got no instance."""
    node_id: str
    mode: Literal["sync", "stream", "async", "lambda", "alarm"]
    tenant: str
    caller: str
    """The claim `name` of the token, else `jti`, or `alarm` and the name of the alarm; empty without either."""
    trace_id: str
    parent_id: Union[str, None]
    """The call whose handler made this one and passed its `traceparent` on; null when the history has none."""
    outcome: Literal["ok", "error"]
    error_code: Union[str, None]
    """The number of a failure, or the word of a failure of the service, or `cancelled`."""
    start_time: str
    duration_ms: float
    queue_ms: float
    place_ms: float
    start_ms: float
    load_ms: float
    run_ms: float
    input_bytes: int
    output_bytes: int


class CallRecord(_CallRecord, total=False):
    agent_id: str
    """The `instance_id` of an agent."""
    name: str
    """`<namespace>/<name>` of an agent; empty when it was deleted early."""
    function: str
    """`0@<service>@<name>`"""
    version: str
    error: str
    """The text of a failure; viewers do not get it."""


class _CallRecording(TypedDict):
    kind: Literal["agent", "function"]
    start_time: str
    end_time: str


class CallRecording(_CallRecording, total=False):
    agent_id: str
    """The `instance_id` of an agent."""
    function: str
    """`0@<service>@<name>`"""


class CallRecordingRequest(TypedDict, total=False):
    agent: str
    """The `instance_id` of an agent."""
    function: str
    """A function: `<service>@<name>`, `0@<service>@<name>` or its URN. All its versions."""
    seconds: int
    """How long, from now on."""


class _CallResult(TypedDict):
    requestId: str
    status: Literal["queued", "processing", "completed", "failed"]
    createdAt: str


class CallResult(_CallResult, total=False):
    result: Any
    error: CallError
    completedAt: str


class CancelAgentAlarmResponse(TypedDict):
    code: Literal[200]
    status: Literal["cancelled"]


class Cluster(TypedDict):
    node_id: str
    """The replica that answers."""
    storage: Union[Literal["sqlite"], Literal["postgres"]]
    """`sqlite`: embedded, and so there is one replica."""
    is_member: bool
    """False: it has lost its place and tries to get a new one."""
    heartbeat_age_ms: int
    """How long ago its last heartbeat reached the database."""
    feed_behind_ms: int
    """How far it may be behind the changes of others."""
    shards: ClusterShards
    jobs: Union[str, None]
    """The node that dispatches jobs and schedules. Null: no node at the moment."""
    sweeper: Union[str, None]
    """The node that cleans up once for all."""
    nodes: List[ClusterNode]
    """Those that are alive, by id."""


class ClusterNode(TypedDict):
    id: str
    epoch: int
    """One more with each start, and after each time that it was counted as dead."""
    address: str
    """`host:port` where other replicas reach this node. Empty: none does."""
    roles: List[str]
    """None: it is about to go."""
    version: str
    joined_at: str
    shards: int
    """How many of the shards of functions it owns."""
    leases: List[str]
    """`jobs` (their queue and the schedules), `sweeper`."""


class ClusterShards(TypedDict):
    total: int
    owned: int


class CodePackage(TypedDict):
    sha256: str
    """SHA-256 of the archive."""
    source: str
    """`code://<sha256>`: what a mount or a `codePath` names."""
    bytes: int
    """Of the archive."""
    created_at: str
    used_at: str
    """Its upload, or when something last began to use it."""


class CodePackageAnswer(TypedDict):
    code: Literal[200]
    package: CodePackage


class _CreateAgentRequest(TypedDict):
    namespace: str
    name: str


class CreateAgentRequest(_CreateAgentRequest, total=False):
    runtime_spec: RuntimeSpec
    urn: str
    """functionVersionUrn of a registered function (registered mode)."""
    template: str
    """Makes a sandbox without code, which takes commands, files and ports. Of `runtime_spec`, which may be absent, it takes `sandbox_type`, `rootfs`, `cpu` and `memory`."""
    image: str
    """Makes a sandbox without code from an image that the Docker daemon of the service has. Takes `cpu` and `memory` of `runtime_spec`; no mounts."""
    env_vars: Dict[str, Union[str, SecretReference]]
    workspace: str
    """Absolute path on the host; empty: none."""
    mounts: List[Mount]
    expose: AgentExpose
    restart_policy: Union[Literal["never", "on-failure", "always"], RestartPolicy]
    """What follows when its sandbox ends by itself; absent: `never`."""
    durable: Union[bool, CreateAgentRequestDurable]
    """`true`: what the code keeps in `context.state` is saved before a call is answered, and survives crashes and restarts."""
    replace: bool
    """The agent that holds the name keeps running until the new one is ready: its code is loaded and its initializer has run. Then the new agent gets the name and the old one is deleted. When the new one fails, it is removed and the old one keeps running. Without an agent of this name it is a create whose code must load."""
    labels: Dict[str, str]
    """Names and values; lists select agents by them."""
    ttl_seconds: float
    """Time to live from the start; absent: until it is deleted."""
    idle_seconds: float
    """It ends after this time without a call, a command or other access."""
    on_expiry: Literal["delete", "pause"]
    """The action at the end of `ttl_seconds` or `idle_seconds`."""


class CreateAgentRequestDurable(TypedDict, total=False):
    pause_after_seconds: Any
    """Has no effect yet."""
    save: Any
    """Has no effect yet."""
    schema: Any
    """Has no effect yet."""
    code: Any
    """Has no effect yet."""
    busy: Any
    """Has no effect yet."""
    wake_on: Any
    """Has no effect yet."""
    max_awake_seconds: Any
    """Has no effect yet."""
    files: CreateAgentRequestDurableFiles
    sleep_after_seconds: float
    """It sleeps after this time without a call, a command or other access; 0: only on request. With `idle_seconds` the default is 0."""


class _CreateAgentRequestDurableFiles(TypedDict):
    path: str
    """Absolute path of the directory inside the sandbox."""


class CreateAgentRequestDurableFiles(_CreateAgentRequestDurableFiles, total=False):
    """A directory that is kept when its process ends; not with kubernetes."""

    max_mb: int
    """Above it the agent does not fall asleep."""


class CreateApiKeyRequest(TypedDict, total=False):
    role: Literal["developer", "user", "viewer"]
    """The role of clients with the key: `viewer` lists sandboxes, `developer` may do everything."""


class CreateApiKeyResponse(TypedDict):
    code: Literal[200]
    key: CreateApiKeyResponseKey
    value: str
    """The key: `e2b_` and 40 hexadecimal digits."""


class CreateApiKeyResponseKey(TypedDict):
    id: str
    """Names the key in later requests. It opens nothing."""
    role: str
    created_at: str


class CreateAwsKeyRequest(TypedDict, total=False):
    role: Literal["developer", "user", "viewer"]
    """The role of clients with the key: `viewer` lists functions, `user` also calls them."""


class CreateAwsKeyResponse(TypedDict):
    code: Literal[200]
    key: CreateAwsKeyResponseKey
    access_key_id: str
    """`AWS_ACCESS_KEY_ID` of clients."""
    secret_access_key: str
    """`AWS_SECRET_ACCESS_KEY` of clients."""


class CreateAwsKeyResponseKey(TypedDict):
    id: str
    """Names the key in later requests. It opens nothing."""
    role: str
    created_at: str


class _CreateBuildRequest(TypedDict):
    source: str
    """The code: `code://<sha256>`, or a directory of the host."""
    runtime: str


class CreateBuildRequest(_CreateBuildRequest, total=False):
    sandbox_type: Literal["", "docker", "supervisor", "kubernetes"]
    """Of what will run it. Empty: the default executor."""


class _CreateBuildResponse(TypedDict):
    code: Literal[200]
    build: Union[Build, None]


class CreateBuildResponse(_CreateBuildResponse, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _CreateJobScheduleRequest(TypedDict):
    cron: str
    """Five or six fields."""
    job: JobRequest


class CreateJobScheduleRequest(_CreateJobScheduleRequest, total=False):
    schedule_id: Union[str, None]
    timezone: Union[str, None]
    overlap: Union[Literal["skip", "allow"], None]


class CreatePoolsRequest(TypedDict):
    pools: List[PoolRequest]


class _CreatePoolsResponse(TypedDict):
    code: Literal[0]
    message: Literal[""]
    result: CreatePoolsResponseResult


class CreatePoolsResponse(_CreatePoolsResponse, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _CreatePoolsResponse2(TypedDict):
    code: int
    message: str
    """Why, one sentence for each pool, joined by `;`."""


class CreatePoolsResponse2(_CreatePoolsResponse2, total=False):
    result: CreatePoolsResponse2Result
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class CreatePoolsResponse2Result(TypedDict):
    failed_pools: List[str]
    """The others were created."""


class CreatePoolsResponseResult(TypedDict):
    failed_pools: None


class _DeleteFunctionResponse(TypedDict):
    code: Literal[0]
    message: Literal["SUCCESS"]


class DeleteFunctionResponse(_DeleteFunctionResponse, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class DeleteReservedInstancesRequest(TypedDict, total=False):
    funcName: str
    """`0@{service}@{funcName}`, such as `0@demo@hello`, or a URN of the function; the version of a URN must be `version`."""
    version: str
    instanceLabel: str
    """Absent: all."""


class Deleted(TypedDict):
    code: Literal[200]
    status: Literal["deleted"]


class _Error(TypedDict):
    code: int
    message: str


class Error(_Error, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _FileEntry(TypedDict):
    path: str
    """Absolute, inside."""
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    """Bytes."""
    mode: str
    """Octal, such as `0644`."""
    modified_at: str


class FileEntry(_FileEntry, total=False):
    not_utf8: Literal[True]
    """Only where the path is not UTF-8: `path` and `name` have U+FFFD for each byte that is none, and no request can name the file."""


class _FileFacts(TypedDict):
    path: str
    """Absolute, inside."""
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    """Bytes."""
    mode: str
    """Octal, such as `0644`."""
    modified_at: str
    owner: str
    """Its name in the sandbox, or its number."""
    group: str
    metadata: Dict[str, str]
    """Its attributes whose names begin with `user.e2b.`, without that."""


class FileFacts(_FileFacts, total=False):
    target: FileFactsTarget


class FileFactsTarget(TypedDict):
    """Only of a symbolic link: where it leads."""

    path: str
    type: Union[Literal["file", "directory", "symlink", "other"], None]
    """null: it does not exist."""


class Finding(TypedDict):
    name: str
    status: Union[Literal["ok"], Literal["warn"], Literal["fail"]]
    text: str
    notes: List[str]


class ForkAgentRequest(TypedDict, total=False):
    name: str
    """With a `count` above 1, `-1`, `-2` … follow it. Absent: the service makes names up."""
    namespace: str
    """Absent: that of the original."""
    count: int
    env_vars: Dict[str, Union[str, SecretReference]]
    """In addition to the variables of the original."""
    ttl_seconds: float
    """Time to live from the start; absent: that with which the original was created."""
    files_only: bool
    """The files suffice, although the original runs processes."""


class _FunctionAnswer(TypedDict):
    code: Literal[0]
    message: Literal["SUCCESS"]
    function: FunctionVersion


class FunctionAnswer(_FunctionAnswer, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _FunctionError(TypedDict):
    code: int
    message: str


class FunctionError(_FunctionError, total=False):
    trace_id: str


class _FunctionExpose(TypedDict):
    port: int
    """A TCP port on 127.0.0.1 inside; 0: none has an address."""


class FunctionExpose(_FunctionExpose, total=False):
    """Gives a port of its instances an address: docs/guides/addresses.md."""

    access: Literal["token", "link", "public"]
    """Who may come: `token`, `link` (a token or a signed link), `public`."""


class FunctionHookTimeouts(TypedDict, total=False):
    initializer: int
    """Seconds."""
    pre_stop: int
    """Seconds."""


class FunctionHooks(TypedDict, total=False):
    initializer: str
    pre_stop: str
    alarm: str
    """Of durable agents: what gets their alarms."""
    sleep: str
    """Of durable agents: what runs before they fall asleep."""


class FunctionInstance(TypedDict):
    instance_id: str
    status: str
    running_calls: int
    label: str
    cpu: int
    memory: int
    start_time: str


class _FunctionMount(TypedDict):
    source: str
    """Absolute path on the host; not an unsafe one."""
    target: str
    """Path inside the sandbox."""


class FunctionMount(_FunctionMount, total=False):
    readonly: bool


class _FunctionRegistered(TypedDict):
    code: Literal[0]
    message: Literal["SUCCESS"]
    functionVersionUrn: str
    function: FunctionVersion


class FunctionRegistered(_FunctionRegistered, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class FunctionRootfs(TypedDict, total=False):
    type: str
    """`image` for an image."""
    imageurl: str
    user: str
    """Empty: root."""
    ports: List[str]
    path: str
    readonly: bool
    mounts: List[FunctionMount]


class FunctionStatsResponse(TypedDict):
    instances: List[FunctionStatsResponseInstancesItem]


class _FunctionStatsResponseInstancesItem(TypedDict):
    instance_id: str
    memory_bytes: int
    cpu_micros: int
    """Time on processors since the sandbox started."""
    processes: int


class FunctionStatsResponseInstancesItem(_FunctionStatsResponseInstancesItem, total=False):
    asleep: Literal[True]
    """Only of a SLEEPING agent, which uses nothing."""


class _FunctionVersion(TypedDict):
    id: str
    """The functionVersionUrn."""
    createTime: str
    updateTime: str
    functionUrn: str
    name: str
    kind: Literal["agent", "faas", "yrlib", "custom"]
    tenantId: str
    businessId: str
    productId: str
    reversedConcurrency: int
    description: str
    tag: Union[Dict[str, str], None]
    functionVersionUrn: str
    revisionId: str
    codeSize: int
    codeSha256: str
    storageType: Literal["", "local", "s3", "copy", "package"]
    codePath: str
    bucketId: str
    objectId: str
    s3CodePath: Union[StoredS3CodePath, None]
    handler: str
    extendedHandler: AgentExtendedHandler
    extendedTimeout: StoredFunctionHookTimeouts
    layers: Union[List[Any], None]
    cpu: int
    memory: int
    runtime: str
    timeout: int
    versionNumber: str
    versionDesc: str
    environment: Dict[str, Union[str, StoredSecretReference]]
    customResources: Union[Dict[str, float], None]
    statefulFlag: int
    lastModified: str
    Published: str
    created: str
    sandboxType: str
    rootfs: Union[StoredFunctionRootfs, None]
    minInstance: int
    maxInstance: int
    concurrentNum: int
    poolId: str
    idleTime: int
    autoScaleConfig: Union[StoredAutoScaleConfig, None]
    schedulePolicies: Union[List[Any], None]
    enableSessionCtx: bool
    enableAgentSession: bool
    isFuncPublic: bool
    funcLayer: List[Any]
    instanceNum: int
    device: Dict[str, Any]
    status: Literal["", "unavailable"]


class FunctionVersion(_FunctionVersion, total=False):
    httpProfile: str
    dependencies: Literal["auto"]
    inputSchema: Dict[str, Any]
    validateInput: bool


class GetAgentResponse(TypedDict):
    code: Literal[200]
    instance: Agent


class GetBuildResponse(TypedDict):
    code: Literal[200]
    build: Build


class GetCallResponse(TypedDict):
    code: Literal[200]
    call: CallDetails


class GetFindingsResponse(TypedDict):
    findings: List[Finding]


class GetJobApiVersionResponse(TypedDict):
    version: str
    ray_version: str
    ray_commit: str


class GetJobLogsResponse(TypedDict):
    logs: str


class GetMetricsHistoryResponse(TypedDict):
    step_seconds: int
    """Between two points."""
    start: int
    """When the step of the first point began, seconds since 1970."""
    series: Dict[str, List[Union[float, None]]]
    """A list of points for each name, the oldest first; null: not known. `calls` and `errors` of each step, `p50_ms` and `p99_ms` of its calls; of a function also `instances` and `instances_ready`; of the service also levels: CPU, memory, instances, open calls, jobs. Of several replicas sums, and of percentiles the highest."""
    nodes: List[str]
    """The replicas whose numbers are in it."""
    silent_nodes: List[str]
    """Replicas that live and did not answer: their numbers are missing."""


class GetSettingsResponse(TypedDict):
    settings: List[Setting]


class GetUsageResponse(TypedDict):
    usage: Dict[str, GetUsageResponseUsageValue]
    """By the id of an agent, or the name of a function. Without calls and readings it is absent."""
    nodes: List[str]
    """The replicas whose numbers are included."""
    silent_nodes: List[str]
    """Replicas that live and did not answer."""


class _GetUsageResponseUsageValue(TypedDict):
    calls: int
    """Calls that ended in the last 55 to 60 minutes."""
    errors: int
    """Those of them that failed."""
    p99_ms: Union[float, None]
    """Null without calls."""
    cpu_millis: Union[float, None]
    """Thousandths of a processor, between the two newest readings. Null: unknown."""
    memory_mb: Union[float, None]
    """Memory at the newest reading. Null: unknown."""


class GetUsageResponseUsageValue(_GetUsageResponseUsageValue, total=False):
    instances: int
    """Only of a function: its running instances."""


class HealthResponse(TypedDict):
    status: str


class ImportAgentResponse(TypedDict):
    code: Literal[201]
    instance_id: str


class InvokeAgentResponse(TypedDict):
    code: Literal[200]
    data: Any
    """What the handler returned."""
    message: Literal[""]


class _Job(TypedDict):
    type: Literal["SUBMISSION"]
    job_id: None
    submission_id: str
    driver_info: JobDriver
    status: Union[Literal["PENDING"], Literal["RUNNING"], Literal["STOPPED"], Literal["SUCCEEDED"], Literal["FAILED"]]
    entrypoint: str
    message: str
    error_type: str
    start_time: str
    """Milliseconds, when it was submitted."""
    end_time: Union[str, None]
    metadata: Dict[str, str]
    runtime_env: Dict[str, Any]
    driver_agent_http_address: Literal[""]
    driver_node_id: str
    driver_exit_code: Union[int, None]
    attempt: int
    max_attempts: int
    run_time: Union[str, None]
    """Milliseconds, when this attempt started."""


class Job(_Job, total=False):
    waits_for: str
    """Only of one job: what it waits for in the queue of this replica."""


class JobDriver(TypedDict):
    id: str
    node_ip_address: str
    pid: str


class _JobRequest(TypedDict):
    entrypoint: str
    """One line for `/bin/sh -c`."""


class JobRequest(_JobRequest, total=False):
    job_id: Union[str, None]
    submission_id: Union[str, None]
    metadata: Union[Dict[str, str], None]
    runtime_env: Union[RuntimeEnv, None]
    entrypoint_label_selector: Union[Dict[str, str], None]
    entrypoint_memory: Union[float, None]
    entrypoint_resources: Union[Dict[str, float], None]
    entrypoint_num_cpus: Union[float, None]
    entrypoint_num_gpus: Union[float, None]


class JobSchedule(TypedDict):
    schedule_id: str
    cron: str
    timezone: str
    overlap: Union[Literal["skip"], Literal["allow"]]
    job: Dict[str, Any]
    create_time: str
    next_run_time: Union[str, None]


class _Link(TypedDict):
    code: Literal[200]
    url: str
    """Whoever has it may come until then; it leads to the address without the signature."""
    expires_at: str


class Link(_Link, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class LinkRequest(TypedDict, total=False):
    expires_seconds: int
    """How long the link, and the session that it opens, is valid."""


class _ListAgentAlarmsResponseItem(TypedDict):
    name: str
    id: str
    """Names one due time; the retries of that time have the same id."""
    at: str
    """The next time."""
    attempts: int
    """Failed deliveries of this time."""
    missed: int
    """Earlier regular times that were not delivered."""
    failed: bool
    """true: all attempts have failed; it is not delivered again."""


class ListAgentAlarmsResponseItem(_ListAgentAlarmsResponseItem, total=False):
    every: float
    """Seconds."""
    cron: str
    tz: str
    max_late_seconds: float
    retry_at: str
    """Only after a failed delivery."""
    last_error: str
    """Why the last delivery failed."""


class ListAgentsResponse(TypedDict):
    code: Literal[200]
    instances: List[Agent]
    next_cursor: Union[str, None]


class ListApiKeysResponse(TypedDict):
    code: Literal[200]
    keys: List[CreateApiKeyResponseKey]


class ListAwsKeysResponse(TypedDict):
    code: Literal[200]
    keys: List[CreateAwsKeyResponseKey]


class ListBuildsResponse(TypedDict):
    code: Literal[200]
    builds: List[Build]


class ListCallRecordingsResponse(TypedDict):
    code: Literal[200]
    recordings: List[CallRecording]


class ListCallsResponse(TypedDict):
    code: Literal[200]
    calls: List[CallRecord]
    next_cursor: Union[str, None]


class ListCodeResponse(TypedDict):
    code: Literal[200]
    packages: List[CodePackage]
    next_cursor: Union[str, None]


class ListFilesResponse(TypedDict):
    code: Literal[200]
    files: List[FileEntry]
    truncated: bool
    """There are more than 10000."""


class _ListFunctionInstancesResponse(TypedDict):
    instances: List[FunctionInstance]
    waiting_calls: int
    """The calls that wait for an instance."""


class ListFunctionInstancesResponse(_ListFunctionInstancesResponse, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class ListFunctionsResponse(TypedDict):
    code: Literal[0]
    message: Literal[""]
    result: ListFunctionsResponseResult


class ListFunctionsResponseResult(TypedDict):
    total: int
    functions: List[FunctionVersion]


class ListPoolsResponse(TypedDict):
    code: Literal[0]
    message: Literal[""]
    result: ListPoolsResponseResult


class ListPoolsResponseResult(TypedDict):
    count: int
    pools: List[Pool]


class ListProcessesResponse(TypedDict):
    code: Literal[200]
    processes: List[ListProcessesResponseProcessesItem]


class ListProcessesResponseProcessesItem(TypedDict):
    pid: int
    command: List[str]
    working_dir: str
    user: str
    """Empty: the user of the sandbox."""
    tag: Union[str, None]
    tty: bool
    started_at: str


class ListReservedInstancesResponse(TypedDict):
    code: Literal[0]
    message: Literal[""]
    total: int
    results: List[ListReservedInstancesResponseResultsItem]


class ListReservedInstancesResponseResultsItem(TypedDict):
    instanceLabel: str
    instanceConfigInfos: List[StoredReservedInstances]


class ListSecretsResponse(TypedDict):
    code: Literal[200]
    secrets: List[Secret]


class ListVersionsResponse(TypedDict):
    code: Literal[0]
    message: Literal[""]
    functions: Union[List[FunctionVersion], None]
    pageInfo: ListVersionsResponsePageInfo


class ListVersionsResponsePageInfo(TypedDict):
    total: int
    pageSize: str
    pageIndex: str


class LoginRequest(TypedDict, total=False):
    token: str
    """A token, as the header `X-Auth` would carry it."""
    code: str
    """Instead of a token: the code of a one-time link."""


class LogoutResponse(TypedDict):
    code: int


class MakeDirectoryResponse(TypedDict):
    code: Literal[200]
    path: str


class MakeLoginLinkResponse(TypedDict):
    code: str
    expires_seconds: int


class _MetaAnswer(TypedDict):
    code: Literal[0]
    message: Literal[""]


class MetaAnswer(_MetaAnswer, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _MetaRefusal(TypedDict):
    code: int
    message: str


class MetaRefusal(_MetaRefusal, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _Mount(TypedDict):
    source: str
    """Absolute path on the host; or a code package, `code://<sha256>`, which is mounted read-only."""
    target: str
    """Path inside the sandbox."""


class Mount(_Mount, total=False):
    readonly: bool


class _NameTaken(TypedDict):
    code: Literal[409]
    message: str


class NameTaken(_NameTaken, total=False):
    instance_id: str
    """The instance that holds the name."""
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class NotReady(TypedDict):
    code: int
    message: str
    components: Dict[str, str]


class Pool(TypedDict):
    id: str
    group: str
    size: int
    max_size: int
    status: int
    """0 new, 1 creating, 2 update requested, 3 updating, 4 running, 5 failed, 6 deleting"""
    msg: str
    ready_count: int
    resources: PoolResources
    reuse: bool
    image: str
    init_image: str
    labels: Union[Dict[str, str], None]
    environment: Union[Dict[str, str], None]
    volumes: str
    volume_mounts: str
    affinities: str
    node_selector: Union[Dict[str, str], None]
    runtime_class_name: str
    tolerations: str
    horizontal_pod_autoscaler_spec: str
    topology_spread_constraints: str
    pod_pending_duration_threshold: int
    idle_recycle_time: PoolIdleRecycleTime
    scalable: bool
    pod_anti_affinities: str


class PoolIdleRecycleTime(TypedDict):
    reserved: int
    scaled: int


class _PoolRequest(TypedDict):
    id: str
    resources: PoolRequestResources


class PoolRequest(_PoolRequest, total=False):
    group: str
    reuse: bool
    size: int
    max_size: int
    """0 or absent: the size."""
    image: str
    init_image: str
    labels: Dict[str, str]
    environment: Dict[str, str]
    volumes: str
    """An array of Volumes as a JSON text."""
    volume_mounts: str
    """An array of VolumeMounts as a JSON text."""
    affinities: str
    """An Affinity as a JSON text."""
    node_selector: Dict[str, str]
    runtime_class_name: str
    tolerations: str
    """An array of Tolerations as a JSON text."""
    horizontal_pod_autoscaler_spec: str
    """A HorizontalPodAutoscalerSpec as a JSON text."""
    topology_spread_constraints: str
    """An array of TopologySpreadConstraints as a JSON text."""
    pod_pending_duration_threshold: int
    """Seconds; 0: the default."""
    idle_recycle_time: PoolRequestIdleRecycleTime


class PoolRequestIdleRecycleTime(TypedDict, total=False):
    reserved: int
    """Seconds; -1: never, 0: not configured."""
    scaled: int
    """Seconds; -1: never, 0: not configured."""


class PoolRequestResources(TypedDict):
    requests: Dict[str, str]
    """cpu as `500m`, memory as `512Mi` or `1Gi`."""
    limits: Dict[str, str]


class PoolResources(TypedDict):
    requests: Dict[str, str]
    limits: Dict[str, str]


class PortMapping(TypedDict):
    protocol: Literal["tcp", "udp"]
    container_port: int
    host_ip: str
    host_port: int


class _PublishFunctionRequest(TypedDict):
    revisionId: str
    """The latest one."""


class PublishFunctionRequest(_PublishFunctionRequest, total=False):
    versionNumber: str
    """Empty or absent: made from the time."""
    versionDesc: str
    kind: Literal["", "agent", "faas", "yrlib", "custom"]
    """If sent, the function’s own."""


class PutCallRecordingResponse(TypedDict):
    code: Literal[200]
    recording: CallRecording


class PutSecretRequest(TypedDict):
    value: str
    """What the code sees. Nobody reads it back."""


class PutSecretResponse(TypedDict):
    code: Literal[200]
    secret: Secret


class _RegisterFunctionRequest(TypedDict):
    name: str
    """`0@{service}@{funcName}`, such as `0@demo@hello`"""
    runtime: str
    """`python3.11`, `nodejs22`, `go`, `java17` …"""
    cpu: int
    """1/1000 core"""
    memory: int
    """MB"""


class RegisterFunctionRequest(_RegisterFunctionRequest, total=False):
    kind: Literal["", "agent", "faas", "yrlib", "custom"]
    timeout: int
    """Seconds."""
    handler: str
    """`module.function`; required for kind faas."""
    httpProfile: Literal["", "http", "functions-framework", "agentcore", "sagemaker", "cloud-run"]
    """The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`."""
    environment: Dict[str, Union[str, SecretReference]]
    description: str
    storageType: Literal["", "local", "s3", "copy", "package"]
    """Required for kind faas. `package`: a code package."""
    codePath: str
    """A directory of the host; with `storageType: package`, `code://<sha256>`."""
    dependencies: Literal["", "none", "auto"]
    """`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing."""
    s3CodePath: S3CodePath
    extendedHandler: FunctionHooks
    extendedTimeout: FunctionHookTimeouts
    sandboxType: Literal["", "docker", "supervisor", "kubernetes"]
    """Empty: the default executor."""
    rootfs: FunctionRootfs
    minInstance: Union[int, str]
    maxInstance: Union[int, str]
    concurrentNum: Union[int, str]
    customResources: Dict[str, float]
    tags: Dict[str, str]
    layers: List[Any]
    """With runtime `lambda`: code packages (`code://<sha256>`) whose files are below `/opt`. Others store it."""
    device: Dict[str, Any]
    """Values of any shape, at most 100 levels deep."""
    poolId: str
    idleTime: int
    """Seconds."""
    autoScaleConfig: AutoScaleConfig
    schedulePolicies: List[Any]
    """Values of any shape, at most 100 levels deep."""
    enableSessionCtx: bool
    enableAgentSession: bool
    isFuncPublic: bool
    expose: FunctionExpose
    inputSchema: Dict[str, Any]
    """The JSON Schema of the event; `{}`: none. With it and a description, the function is a tool of the MCP server."""
    validateInput: bool
    """Events that do not fit `inputSchema` are refused before the call."""


class RerunJobResponse(TypedDict):
    job_id: str
    submission_id: str


class ReservedInstances(TypedDict, total=False):
    clusterId: str
    minInstance: Union[int, str]
    maxInstance: Union[int, str]


class _ReservedInstancesAnswer(TypedDict):
    code: Literal[0]
    message: Literal[""]
    instanceConfigInfos: List[StoredReservedInstances]
    reserveInsBaseInfo: ReservedInstancesAnswerReserveInsBaseInfo


class ReservedInstancesAnswer(_ReservedInstancesAnswer, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class ReservedInstancesAnswerReserveInsBaseInfo(TypedDict):
    funcName: str
    version: str
    instanceLabel: str


class ReservedInstancesRequest(TypedDict):
    funcName: str
    """`0@{service}@{funcName}`, such as `0@demo@hello`, or a URN of the function; the version of a URN must be `version`."""
    version: str
    instanceLabel: str
    instanceConfigInfos: List[ReservedInstances]
    """Each cluster once."""


class _RestartPolicy(TypedDict):
    policy: Literal["never", "on-failure", "always"]
    """`on-failure`: unless it ended with exit code 0. `always`: however it ended."""


class RestartPolicy(_RestartPolicy, total=False):
    max_restarts: int
    """In a row; absent: 5 for `on-failure`, no bound for `always`."""
    backoff_seconds: float
    """Before the first restart in a row; doubled for each further one, up to 300 s."""


class ResumeAgentResponse(TypedDict):
    code: Literal[200]
    resumed: bool
    """false: it was running."""
    instance: Agent


class _RunCodeRequest(TypedDict):
    code: str


class RunCodeRequest(_RunCodeRequest, total=False):
    language: str
    """`python` (default), or `javascript` where Node.js exists."""
    context_id: str
    """A context of the interpreter, instead of a language."""
    env_vars: Dict[str, str]
    """Variables for this cell in addition to others."""


class RuntimeEnv(TypedDict, total=False):
    """`pip` is a list of requirements, or an object with `packages`, `pip_check`, `pip_version` and `pip_install_options`; docs/guides/jobs.md says more. Other keys are kept and ignored."""

    env_vars: Union[Dict[str, Union[str, SecretReference]], None]
    working_dir: Union[str, None]
    py_modules: Union[List[str], None]
    conda: None
    """Refused: it cannot be honoured here."""
    container: None
    """Refused: it cannot be honoured here."""
    image_uri: None
    """Refused: it cannot be honoured here."""
    java_jars: None
    """Refused: it cannot be honoured here."""
    mpi: None
    """Refused: it cannot be honoured here."""
    nsight: None
    """Refused: it cannot be honoured here."""
    py_executable: None
    """Refused: it cannot be honoured here."""
    rocprof_sys: None
    """Refused: it cannot be honoured here."""
    uv: None
    """Refused: it cannot be honoured here."""
    worker_process_setup_hook: None
    """Refused: it cannot be honoured here."""


class RuntimeHooks(TypedDict, total=False):
    initializer: str
    """`module.function`, once at the start."""
    pre_stop: str
    """`module.function`, once at the end."""
    alarm: str
    """`module.function`, for each alarm of a durable agent; without it the handler."""
    sleep: str
    """`module.function`, before a durable agent falls asleep; at most 5 s."""


class _RuntimeRootfs(TypedDict):
    imageurl: str
    """May be empty only where instances are pods: then it is the image of the pod that fits."""


class RuntimeRootfs(_RuntimeRootfs, total=False):
    user: str
    """Empty: root."""
    ports: List[str]


class _RuntimeSpec(TypedDict):
    runtime: str
    rootfs: RuntimeRootfs


class RuntimeSpec(_RuntimeSpec, total=False):
    sandbox_type: Literal["", "docker", "supervisor", "kubernetes"]
    """Empty: the default executor."""
    codePath: str
    """Code directory inside the sandbox; a mount has to bring it."""
    handler: str
    """`module.function`"""
    httpProfile: Literal["", "http", "functions-framework", "agentcore", "sagemaker", "cloud-run"]
    """The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`."""
    dependencies: Literal["", "none", "auto"]
    """`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing."""
    extendedHandler: RuntimeHooks
    cpu: int
    """1/1000 core"""
    memory: int
    """MB"""


class S3CodePath(TypedDict, total=False):
    bucketId: str
    objectId: str
    bucketUrl: str
    token: str
    """In no answer."""
    sha512: str


class _ScheduleCreated(TypedDict):
    schedule_id: str
    cron: str
    timezone: str
    overlap: Union[Literal["skip"], Literal["allow"]]
    job: Dict[str, Any]
    create_time: str
    next_run_time: Union[str, None]


class ScheduleCreated(_ScheduleCreated, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class Secret(TypedDict):
    name: str
    created_at: str
    updated_at: str
    """When its value was last written."""
    readable: bool
    """Whether this service has the key that it is encrypted with."""


class SecretReference(TypedDict):
    """The value of a secret, which is looked up when a sandbox starts."""

    secret: str


class Session(TypedDict):
    authentication: bool
    """False: every caller is a developer of every tenant."""
    tenant: Union[str, None]
    """null: any; the header `X-Tenant-Id` says which."""
    role: Union[Literal["viewer"], Literal["user"], Literal["developer"]]
    sees_service: bool
    """Whether the numbers, replicas and settings of the whole service are shown."""
    version: str


class SessionAnswer(TypedDict):
    message: str


class SetAgentAlarmRequest(TypedDict, total=False):
    at: Union[str, int]
    """Once, at this time: RFC 3339, or milliseconds since 1970. A past time is due now."""
    after: float
    """Once, this many seconds from now."""
    every: float
    """Again and again after this many seconds; first after one interval."""
    cron: str
    """Again and again, at the times of five fields of cron."""
    tz: str
    """With `cron`: the zone, for example `Europe/Berlin`. Default: UTC."""
    payload: Any
    """What the agent gets: JSON of at most 16 KiB."""
    max_late_seconds: float
    """It is dropped if it cannot be delivered within this time. Default: it is delivered late."""


class SetAgentAlarmResponse(TypedDict):
    code: Literal[200]
    alarm: ListAgentAlarmsResponseItem


class _SetAgentTtlRequest(TypedDict):
    ttl_seconds: float
    """From now; for a paused agent from its resume. 0: it lives until it is deleted."""


class SetAgentTtlRequest(_SetAgentTtlRequest, total=False):
    only_later: bool
    """Never moves the end to an earlier time."""


class Setting(TypedDict):
    name: str
    value: Any
    is_default: bool
    source: str
    """`default`, or where it was given: `--port`, `environment variable ROOKERY_PORT`, `rookery.yaml:3`."""
    doc: str


class SignalProcessRequest(TypedDict, total=False):
    signal: str
    """Name of a signal, such as `SIGKILL`."""


class SignalProcessResponse(TypedDict):
    code: Literal[200]


class _StartProcessRequest(TypedDict):
    command: Union[str, List[str]]
    """A text is run by `/bin/sh -c`, a list is an argument vector."""


class StartProcessRequest(_StartProcessRequest, total=False):
    working_dir: str
    """Default: the working directory of the sandbox."""
    env: Dict[str, str]
    user: str
    """An account inside; default: the user of the sandbox."""
    tag: str
    """A name by which it can be selected like by its pid."""
    stdin: bool
    """Opens a standard input; otherwise it is empty."""
    tty: bool
    """With a terminal."""
    cols: int
    rows: int
    timeout: float
    """Seconds after which the process is killed; 0: never."""


class StartProcessResponse(TypedDict):
    code: Literal[200]
    pid: int
    """Inside the sandbox."""


class StatFileResponse(TypedDict):
    code: Literal[200]
    file: FileFacts


class StopJobResponse(TypedDict):
    stopped: bool


class StoredAutoScaleConfig(TypedDict):
    slaQuota: int
    scaleDownTime: int
    burstScaleNum: int


class StoredFunctionHookTimeouts(TypedDict):
    initializer: int
    pre_stop: int


class StoredFunctionRootfs(TypedDict):
    type: str
    imageurl: str
    user: str
    ports: List[str]
    path: str
    readonly: bool
    mounts: List[StoredMount]


class StoredMount(TypedDict):
    source: str
    target: str
    readonly: bool


class StoredReservedInstances(TypedDict):
    clusterId: str
    minInstance: int
    maxInstance: int


class _StoredRestartPolicy(TypedDict):
    policy: Literal["never", "on-failure", "always"]


class StoredRestartPolicy(_StoredRestartPolicy, total=False):
    max_restarts: Union[int, None]
    backoff_seconds: float


class StoredS3CodePath(TypedDict):
    bucketId: str
    objectId: str
    bucketUrl: str
    sha512: str


class StoredSecretReference(TypedDict):
    secret: str


class _SubmitJobResponse(TypedDict):
    job_id: str
    submission_id: str


class SubmitJobResponse(_SubmitJobResponse, total=False):
    warnings: List[str]
    """Fields of the body that were ignored, and what else the caller should know."""


class _UpdateAgentError409(TypedDict):
    code: Literal[409]
    message: str


class UpdateAgentError409(_UpdateAgentError409, total=False):
    awake_because: List[str]
    """What uses it: `call 2`, `access 1`, `save 1`. Only of an agent in use."""


class UpdateAgentRequest(TypedDict, total=False):
    runtime_spec: UpdateAgentRequestRuntimeSpec
    urn: str
    """Another version of the registered function; excludes `runtime_spec`."""
    env_vars: Dict[str, Union[str, SecretReference]]
    """All variables of the caller."""
    mounts: List[Mount]
    """All mounts of the caller, also that of the code."""
    expose: UpdateAgentRequestExpose
    restart_policy: Union[Literal["never", "on-failure", "always"], RestartPolicy]
    """null: `never`."""
    durable: Union[bool, CreateAgentRequestDurable]
    """Its idle time, and its files."""


class _UpdateAgentRequestExpose(TypedDict):
    port: int
    """A TCP port on 127.0.0.1 inside the sandbox."""


class UpdateAgentRequestExpose(_UpdateAgentRequestExpose, total=False):
    """null: it loses its address."""

    access: Literal["token", "link", "public"]
    """Who may come: `token`, `link` (a token or a signed link), `public`."""


class UpdateAgentRequestRuntimeSpec(TypedDict, total=False):
    runtime: str
    codePath: str
    """Code directory inside the sandbox; a mount has to bring it."""
    handler: str
    """`module.function`"""
    httpProfile: Literal["", "http", "functions-framework", "agentcore", "sagemaker", "cloud-run"]
    """The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`."""
    dependencies: Literal["", "none", "auto"]
    """`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing."""
    cpu: int
    """1/1000 core"""
    memory: int
    """MB"""
    extendedHandler: UpdateAgentRequestRuntimeSpecExtendedHandler
    rootfs: UpdateAgentRequestRuntimeSpecRootfs


class UpdateAgentRequestRuntimeSpecExtendedHandler(TypedDict, total=False):
    """Empty: there is none."""

    initializer: str
    """`module.function`, once at the start."""
    pre_stop: str
    """`module.function`, once at the end."""
    alarm: str
    """`module.function`, for each alarm of a durable agent; without it the handler."""
    sleep: str
    """`module.function`, before a durable agent falls asleep; at most 5 s."""


class UpdateAgentRequestRuntimeSpecRootfs(TypedDict, total=False):
    imageurl: str
    """May be empty only where instances are pods: then it is the image of the pod that fits."""
    user: str
    """Empty: root."""
    ports: List[str]


class _UpdateFunctionRequest(TypedDict):
    revisionId: str
    """The latest one."""


class UpdateFunctionRequest(_UpdateFunctionRequest, total=False):
    name: str
    """If sent, the function’s own."""
    kind: Literal["", "agent", "faas", "yrlib", "custom"]
    """If sent, the function’s own."""
    runtime: str
    """If sent, the function’s own."""
    cpu: int
    """1/1000 core"""
    memory: int
    """MB"""
    timeout: int
    """Seconds."""
    handler: str
    """`module.function`; required for kind faas."""
    httpProfile: Literal["", "http", "functions-framework", "agentcore", "sagemaker", "cloud-run"]
    """The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`."""
    environment: Dict[str, Union[str, SecretReference]]
    description: str
    storageType: Literal["", "local", "s3", "copy", "package"]
    """Required for kind faas. `package`: a code package."""
    codePath: str
    """A directory of the host; with `storageType: package`, `code://<sha256>`."""
    dependencies: Literal["", "none", "auto"]
    """`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing."""
    s3CodePath: S3CodePath
    extendedHandler: FunctionHooks
    extendedTimeout: FunctionHookTimeouts
    sandboxType: Literal["", "docker", "supervisor", "kubernetes"]
    """Empty: the default executor."""
    rootfs: FunctionRootfs
    minInstance: Union[int, str]
    maxInstance: Union[int, str]
    concurrentNum: Union[int, str]
    customResources: Dict[str, float]
    tags: Dict[str, str]
    layers: List[Any]
    """With runtime `lambda`: code packages (`code://<sha256>`) whose files are below `/opt`. Others store it."""
    device: Dict[str, Any]
    """Values of any shape, at most 100 levels deep."""
    poolId: str
    idleTime: int
    """Seconds."""
    autoScaleConfig: AutoScaleConfig
    schedulePolicies: List[Any]
    """Values of any shape, at most 100 levels deep."""
    enableSessionCtx: bool
    enableAgentSession: bool
    isFuncPublic: bool
    expose: FunctionExpose
    inputSchema: Dict[str, Any]
    """The JSON Schema of the event; `{}`: none. With it and a description, the function is a tool of the MCP server."""
    validateInput: bool
    """Events that do not fit `inputSchema` are refused before the call."""


class UpdatePoolRequest(TypedDict, total=False):
    size: int
    max_size: int
    horizontal_pod_autoscaler_spec: str
    """A HorizontalPodAutoscalerSpec as a JSON text."""


class _UploadFileRequest(TypedDict):
    path: str
    """Where it is to be. Ends it in `/` or is a directory there, the name of the file is added."""
    file: str
    """At most 536870912 bytes."""


class UploadFileRequest(_UploadFileRequest, total=False):
    mode: str
    """Permission bits in octal; default those of the file that is there, else `644`."""


class UploadFileResponse(TypedDict):
    code: Literal[200]
    path: str
    size: int


class WakeAgentResponse(TypedDict):
    code: Literal[200]
    woken: bool
    """false: it was running."""
    instance: Agent


class WasDeleted(TypedDict):
    deleted: Literal[True]


#: The method and the path of each operation.
PATHS: Mapping[str, Tuple[str, str]] = {
    "invokeAgent": ("POST", "/api/agent/{instanceId}/invoke"),
    "createAgent": ("POST", "/api/agent"),
    "listAgents": ("GET", "/api/agent"),
    "getAgent": ("GET", "/api/agent/{instanceId}"),
    "deleteAgent": ("DELETE", "/api/agent/{instanceId}"),
    "updateAgent": ("PATCH", "/api/agent/{instanceId}"),
    "setAgentTtl": ("PUT", "/api/agent/{instanceId}/ttl"),
    "pauseAgent": ("POST", "/api/agent/{instanceId}/pause"),
    "resumeAgent": ("POST", "/api/agent/{instanceId}/resume"),
    "sleepAgent": ("POST", "/api/agent/{instanceId}/sleep"),
    "wakeAgent": ("POST", "/api/agent/{instanceId}/wake"),
    "listAgentAlarms": ("GET", "/api/agent/{instanceId}/alarms"),
    "setAgentAlarm": ("PUT", "/api/agent/{instanceId}/alarms/{name}"),
    "cancelAgentAlarm": ("DELETE", "/api/agent/{instanceId}/alarms/{name}"),
    "exportAgent": ("GET", "/api/agent/{instanceId}/export"),
    "importAgent": ("POST", "/api/agent/import"),
    "restartAgent": ("POST", "/api/agent/{instanceId}/restart"),
    "agentLogs": ("GET", "/api/agent/{instanceId}/logs"),
    "agentExec": ("POST", "/api/agent/{instanceId}/exec"),
    "openExec": ("GET", "/api/agent/{instanceId}/exec"),
    "downloadFile": ("GET", "/api/agent/{instanceId}/files/download"),
    "listFiles": ("GET", "/api/agent/{instanceId}/files/list"),
    "makeDirectory": ("POST", "/api/agent/{instanceId}/files/mkdir"),
    "statFile": ("GET", "/api/agent/{instanceId}/files/stat"),
    "renameFile": ("POST", "/api/agent/{instanceId}/files/rename"),
    "removeFile": ("DELETE", "/api/agent/{instanceId}/files"),
    "watchFiles": ("GET", "/api/agent/{instanceId}/files/watch"),
    "startProcess": ("POST", "/api/agent/{instanceId}/processes"),
    "listProcesses": ("GET", "/api/agent/{instanceId}/processes"),
    "signalProcess": ("POST", "/api/agent/{instanceId}/processes/{process}/signal"),
    "attachProcess": ("GET", "/api/agent/{instanceId}/processes/{process}/attach"),
    "agentStats": ("GET", "/api/agent/{instanceId}/stats"),
    "forkAgent": ("POST", "/api/agent/{instanceId}/fork"),
    "uploadFile": ("POST", "/api/agent/{instanceId}/files/upload"),
    "openTunnel": ("GET", "/serverless/v1/ws"),
    "linkAgent": ("POST", "/api/agent/{instanceId}/link"),
    "linkFunction": ("POST", "/serverless/v1/functions/{urn}/link"),
    "createApiKey": ("POST", "/api/e2b/keys"),
    "listApiKeys": ("GET", "/api/e2b/keys"),
    "deleteApiKey": ("DELETE", "/api/e2b/keys/{id}"),
    "runCode": ("POST", "/api/agent/{instanceId}/code"),
    "invokeFunction": ("POST", "/serverless/v1/functions/{urn}/invocations"),
    "invokeFunctionShort": ("POST", "/invocations/{tenant}/{service}/{function}/"),
    "getAsyncResult": ("GET", "/serverless/v1/functions/async-results/{id}"),
    "endSession": ("DELETE", "/serverless/v1/functions/{urn}/sessions/{sessionId}"),
    "interruptSession": ("POST", "/serverless/v1/functions/{urn}/sessions/{sessionId}/interrupt"),
    "listFunctionInstances": ("GET", "/serverless/v1/functions/{urn}/instances"),
    "functionStats": ("GET", "/serverless/v1/functions/{urn}/stats"),
    "readFunctionLogs": ("GET", "/serverless/v1/functions/{urn}/logs"),
    "createAwsKey": ("POST", "/api/aws/keys"),
    "listAwsKeys": ("GET", "/api/aws/keys"),
    "deleteAwsKey": ("DELETE", "/api/aws/keys/{id}"),
    "getCode": ("GET", "/api/code/{sha256}"),
    "deleteCode": ("DELETE", "/api/code/{sha256}"),
    "putCode": ("PUT", "/api/code/{sha256}"),
    "listCode": ("GET", "/api/code"),
    "createBuild": ("POST", "/api/builds"),
    "listBuilds": ("GET", "/api/builds"),
    "getBuild": ("GET", "/api/builds/{id}"),
    "getBuildLogs": ("GET", "/api/builds/{id}/logs"),
    "putSecret": ("PUT", "/api/secrets/{name}"),
    "deleteSecret": ("DELETE", "/api/secrets/{name}"),
    "listSecrets": ("GET", "/api/secrets"),
    "putCallRecording": ("PUT", "/api/recordings"),
    "listCallRecordings": ("GET", "/api/recordings"),
    "deleteCallRecording": ("DELETE", "/api/recordings"),
    "listCalls": ("GET", "/api/calls"),
    "getCall": ("GET", "/api/calls/{id}"),
    "getCluster": ("GET", "/api/cluster"),
    "followEvents": ("GET", "/api/events"),
    "getMetricsHistory": ("GET", "/api/metrics/history"),
    "getUsage": ("GET", "/api/metrics/usage"),
    "getSettings": ("GET", "/api/settings"),
    "getFindings": ("GET", "/api/doctor"),
    "getSession": ("GET", "/api/session"),
    "login": ("POST", "/api/session"),
    "logout": ("DELETE", "/api/session"),
    "makeLoginLink": ("POST", "/api/session/links"),
    "getJobApiVersion": ("GET", "/api/version"),
    "submitJob": ("POST", "/api/jobs"),
    "listJobs": ("GET", "/api/jobs"),
    "getJob": ("GET", "/api/jobs/{id}"),
    "deleteJob": ("DELETE", "/api/jobs/{id}"),
    "stopJob": ("POST", "/api/jobs/{id}/stop"),
    "rerunJob": ("POST", "/api/jobs/{id}/rerun"),
    "getJobLogs": ("GET", "/api/jobs/{id}/logs"),
    "createJobSchedule": ("POST", "/api/job_schedules"),
    "listJobSchedules": ("GET", "/api/job_schedules"),
    "getJobSchedule": ("GET", "/api/job_schedules/{id}"),
    "putJobSchedule": ("PUT", "/api/job_schedules/{id}"),
    "deleteJobSchedule": ("DELETE", "/api/job_schedules/{id}"),
    "getPackage": ("GET", "/api/packages/{protocol}/{name}"),
    "putPackage": ("PUT", "/api/packages/{protocol}/{name}"),
    "registerFunction": ("POST", "/api/meta/serverless/v1/functions"),
    "listFunctions": ("GET", "/api/meta/serverless/v1/functions"),
    "getFunction": ("GET", "/api/meta/serverless/v1/functions/{name}"),
    "updateFunction": ("PUT", "/api/meta/serverless/v1/functions/{name}"),
    "deleteFunction": ("DELETE", "/api/meta/serverless/v1/functions/{name}"),
    "listVersions": ("GET", "/api/meta/serverless/v1/functions/{name}/versions"),
    "publishFunction": ("POST", "/api/meta/serverless/v1/functions/{name}/versions"),
    "createReservedInstances": ("POST", "/api/meta/serverless/v1/functions/reserve-instance"),
    "updateReservedInstances": ("PUT", "/api/meta/serverless/v1/functions/reserve-instance"),
    "listReservedInstances": ("GET", "/api/meta/serverless/v1/functions/reserve-instance"),
    "deleteReservedInstances": ("DELETE", "/api/meta/serverless/v1/functions/reserve-instance"),
    "createPools": ("POST", "/api/meta/serverless/v1/podpools"),
    "listPools": ("GET", "/api/meta/serverless/v1/podpools"),
    "deletePools": ("DELETE", "/api/meta/serverless/v1/podpools"),
    "updatePool": ("PUT", "/api/meta/serverless/v1/podpools/{id}"),
}

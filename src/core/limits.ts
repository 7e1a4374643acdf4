/**
 * Every limit that holds for requests, in one place; `docs/limits.md` is generated from it.
 * Sources: S = the specification, D = the decisions. Settings (what an operator may change) live in `config/`.
 */
export const LIMITS = {
  /** Create and meta bodies. */
  requestBodyBytes: 1024 * 1024,
  /** Invoke bodies. */
  invokeBodyBytes: 6 * 1024 * 1024,
  /** The largest result of a handler, as JSON. */
  responseBodyBytes: 6 * 1024 * 1024,
  /** X-Trace-Id is cut to this many characters. */
  traceIdChars: 128,
  agentNameChars: 128,
  idempotencyKeyChars: 128,
  idempotencyKeepMs: 24 * 60 * 60 * 1000,
  cpuMillis: { min: 1, max: 1_000_000, default: 1000 },
  memoryMb: { min: 16, max: 1_073_741_824, default: 2048 },
  /** Page size of the agent list. */
  agentList: { default: 100, max: 1000 },
  /** How long one inline call may take, waiting included. */
  inlineInvokeTimeoutMs: 900_000,
  /** `extendedTimeout.initializer`, the default; inline instances have it always. */
  initializerTimeoutMs: 30_000,
  /** The least time that a delete gives to `pre_stop` and the end. */
  deleteGraceMs: 10_000,
  /** What `?grace=` of a delete may be at most. */
  deleteGraceMaxSeconds: 86_400,
  execTimeoutSeconds: { default: 300, max: 86_400 },
  /** How much of an exec's stdout and of its stderr is kept, each. */
  execOutputBytes: 8 * 1024 * 1024,
  /** Open files of a process. */
  openFiles: 4096,
  /** Log file of an instance, and how many of them. */
  logFileBytes: 10 * 1024 * 1024,
  logFiles: 3,
  functionTimeoutSeconds: { default: 900, max: 8_640_000 },
  functionPreStopSeconds: 180,
  functionDescriptionChars: 1024,
  /** `minInstance` and `maxInstance` of a function, and of a reservation's cluster. */
  functionInstances: { defaultMin: 0, defaultMax: 100, max: 1000 },
  /** `concurrentNum`. */
  functionConcurrency: { default: 100, max: 1000 },
  publishedVersions: 8,
  /** S: labels of reserved instances per function version. */
  reservedLabels: 100,
  reservedLabelChars: 63,
  clusterIdChars: 64,
  /** Page size of the lists of functions and versions. */
  functionList: { default: 1000, max: 1000 },
  /** One argument, or one variable, of a program: Linux takes 128 KiB. */
  jobEntrypointBytes: 128_000,
  /** As JSON; the job finds both in one variable. */
  jobSettingsBytes: 128_000,
  jobNesting: 100,
  /** Of an agent that was restarted: logs of how many runs before, and how much of each. */
  previousLogs: { runs: 3, lines: 1000, bytes: 1024 * 1024 },
  /** Restarts of an agent by its policy, one after another. */
  restartsInRow: { default: 5, max: 1000 },
  /** The longest pause before one. */
  longestRestartPauseMs: 300_000,
  /** How long an agent has to run for its next end to count as the first. */
  restartResetMs: 60_000,
  /** Of a secret: one variable of a program. */
  secretValueBytes: 65_536,
  secretsPerTenant: 1000,
  poolList: { default: 10, max: 1000 },
  /** One file of an upload. */
  fileUploadBytes: 512 * 1024 * 1024,
  /** A path inside a sandbox, in bytes: what Linux allows. */
  filePathBytes: 4096,
  /** A path of the host that a caller names. */
  hostPathChars: 4096,
  /** Of one create, and of one function. */
  mounts: 100,
  /** Directories in directories, in a copy of code and in an archive. */
  treeDepth: 128,
  /** One list of files: how deep, and how many. */
  fileList: { maxDepth: 64, maxEntries: 10_000 },
  /** Requests that one connection may send ahead of its answers. */
  pipelinedRequests: 64,
  /** Reads that cost much (whole logs, long lists, trees of files) and logs that are followed: how many are open at a time. */
  openScans: { perTenant: 32, inAll: 128 },
  openFollowers: { perTenant: 512, inAll: 2048 },
  /** Of `GET /api/events`: the newest, all tenants together. */
  keptEvents: 4096,
  /** Agents, and functions, whose calls have a history of their own. */
  historySubjects: 512,
  /** One read of a log: a follower that does not read holds as much. */
  logChunkBytes: 16 * 1024,
  /** A line of a log that is longer comes in pieces. */
  logLineBytes: 64 * 1024,
  /** Held by all followers of the merged logs of a function version that do not read. */
  waitingLogBytes: 64 * 1024 * 1024,
  /** How long the head of a request, and a whole request with its body, may take to arrive. */
  headersArrivalMs: 60_000,
  requestArrivalMs: 300_000,
  /** How long an upload or a download may stand still. */
  fileIdleMs: 300_000,
  /** How long the reader of a job's log over a WebSocket may take nothing of it. */
  tailIdleMs: 60_000,
  /** One WebSocket message of a caller. */
  socketMessageBytes: 1024 * 1024,
  /** How long a terminal or a byte channel may be silent. */
  channelIdleMs: 4 * 60 * 60 * 1000,
  /** How long the connection to a port inside a sandbox may take. */
  dialTimeoutMs: 10_000,
  /** How long a request to a port inside a sandbox, or its answer, may stand still. */
  passIdleMs: 900_000,
  /** Tokens that a request to a port inside a sandbox may carry: each is looked at, so that none of the platform's goes in. */
  passTokens: 4,
  /** The head of an answer from a port inside a sandbox, its headers, and interim answers (1xx) before it. */
  passHeadBytes: 16 * 1024,
  passHeaders: 500,
  passInterimAnswers: 16,
  /** How long a signed link to an address may hold. */
  linkSeconds: { min: 10, default: 3600, max: 7 * 24 * 60 * 60 },
  /** Connections to one other replica: requests that are forwarded there at a time. */
  peerConnections: 4096,
  /** How long a connection to another replica may take, its handshake included. */
  peerConnectMs: 2000,
  /** Connections that one published port of a process sandbox has at a time. */
  portConnections: 512,
  /** And all published ports together, UDP callers included. */
  portConnectionsInAll: 4096,
  /** Datagrams that one published UDP port holds, in each direction, while the system takes none. */
  portUdpQueueBytes: 1024 * 1024,
  /** Callers that one published UDP port knows at a time, and how long one may be silent. */
  portUdpCallers: 256,
  portUdpIdleMs: 60_000,
  /** The largest frame of the runtime protocol: a body or a result, and room for its header. */
  frameBytes: 7 * 1024 * 1024,
  /** Frames of all runtimes together that have begun and not ended. */
  unfinishedFrameBytes: 256 * 1024 * 1024,
  /** Events of all streams together that wait for callers who do not read. */
  waitingEventBytes: 256 * 1024 * 1024,
  /** A runtime's text about a failure, in an answer or a record. */
  callErrorChars: 64 * 1024,
  /** The same in a line of the log. */
  loggedErrorChars: 2048,
} as const;

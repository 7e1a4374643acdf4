/**
 * Every limit of requests, in one place; `docs/reference/limits.md` is generated from it. Sources: S = the
 * specification, D = the decisions. Settings, which an operator may change, are in `config/`.
 */
export const LIMITS = {
  /** Create and meta bodies. */
  requestBodyBytes: 1024 * 1024,
  /** Invoke bodies. */
  invokeBodyBytes: 6 * 1024 * 1024,
  /** A zip that a client of AWS Lambda sends in a request. */
  lambdaZipBytes: 50 * 1024 * 1024,
  /** Layers of a function with the runtime `lambda`. */
  lambdaLayers: 5,
  /** The largest result of a handler, as JSON. */
  responseBodyBytes: 6 * 1024 * 1024,
  /** D: nested arrays and objects in an event and in a result. */
  jsonLevels: 500,
  /** JSON of the state of a durable agent. */
  stateBytes: 1024 * 1024,
  stateLevels: 64,
  /** Longest time for which the code of a durable agent keeps it awake at once. */
  keepAwakeSeconds: 3600,
  /** Alarms of a durable agent. */
  alarms: { perAgent: 100, payloadBytes: 16 * 1024, leastEverySeconds: 5, longestSeconds: 10 * 365 * 24 * 60 * 60 },
  /** D: digits of a number in an event and in a result. */
  jsonNumberDigits: 4300,
  /**
   * D: one `NAME=value` of an environment, and one argument of a program. Linux takes 128 KiB, including the
   * final NUL.
   */
  variableBytes: 131_071,
  /** X-Trace-Id is cut to this many characters. */
  traceIdChars: 128,
  agentNameChars: 128,
  idempotencyKeyChars: 128,
  idempotencyKeepMs: 24 * 60 * 60 * 1000,
  cpuMillis: { min: 1, max: 1_000_000, default: 1000 },
  memoryMb: { min: 16, max: 1_073_741_824, default: 2048 },
  /** Page size of the agent list. */
  agentList: { default: 100, max: 1000 },
  /** Page size of the history of calls. */
  callList: { default: 100, max: 1000 },
  /** Characters of a text that the history of calls is searched for. */
  callTextChars: 256,
  /** Time for which all calls of an agent or function are recorded. */
  recordingSeconds: { min: 1, max: 7 * 24 * 3600, default: 3600 },
  /** Agents and functions whose calls are all recorded at the same time. */
  recordingsPerTenant: 100,
  /** Bytes of an input, and of an output, of such a call. */
  recordedBodyBytes: 1_048_576,
  /** Spans of a call: their number, and the characters of each. `chars`: names and attributes of all. */
  callSpans: { count: 128, nameChars: 128, attributes: 16, keyChars: 64, valueChars: 256, chars: 32_768 },
  /** JSON of a call's spans on their way from a runtime, and in a record. */
  callSpansBytes: { sent: 256 * 1024, stored: 32 * 1024 },
  /** Labels of an agent. */
  labels: { count: 64, nameChars: 256, valueChars: 4096 },
  /** Longest `ttl_seconds` and `idle_seconds` of an agent: a year. */
  lifetimeSeconds: { max: 31_536_000 },
  /** Most forks of one request. */
  forks: 100,
  /** Longest duration of an inline call, waiting included. */
  inlineInvokeTimeoutMs: 900_000,
  /** Default of `extendedTimeout.initializer`. Inline instances always use this value. */
  initializerTimeoutMs: 30_000,
  /** Least time that a delete gives to `pre_stop` and the exit. */
  deleteGraceMs: 10_000,
  /** Largest `?grace=` of a delete. */
  deleteGraceMaxSeconds: 86_400,
  execTimeoutSeconds: { default: 300, max: 86_400 },
  /** Bytes that are kept of an exec's stdout and of its stderr, each. */
  execOutputBytes: 8 * 1024 * 1024,
  /** Open files of a process. */
  openFiles: 4096,
  /** Size and number of an instance's log files. */
  logFileBytes: 10 * 1024 * 1024,
  logFiles: 3,
  functionTimeoutSeconds: { default: 900, max: 8_640_000 },
  functionPreStopSeconds: 180,
  functionDescriptionChars: 1024,
  /** `inputSchema` of a function, as JSON. */
  functionInputSchemaBytes: 64 * 1024,
  /** `minInstance` and `maxInstance` of a function, and of a single cluster of a reservation. */
  functionInstances: { defaultMin: 0, defaultMax: 100, max: 1000 },
  /** `concurrentNum`. */
  functionConcurrency: { default: 100, max: 1000 },
  publishedVersions: 8,
  /** S: labels of reserved instances for each function version. */
  reservedLabels: 100,
  reservedLabelChars: 63,
  clusterIdChars: 64,
  /** Page size of the lists of functions and versions. */
  functionList: { default: 1000, max: 1000 },
  /** An argument or variable of a program: Linux takes 128 KiB. */
  jobEntrypointBytes: 128_000,
  /** `runtime_env` and `metadata` as JSON; the job finds both in one variable. */
  jobSettingsBytes: 128_000,
  jobNesting: 100,
  /** Logs of a restarted agent: number of earlier runs, and the part kept of each. */
  previousLogs: { runs: 3, lines: 1000, bytes: 1024 * 1024 },
  /** Consecutive restarts of an agent by its policy. */
  restartsInRow: { default: 5, max: 1000 },
  /** The longest pause before a restart. */
  longestRestartPauseMs: 300_000,
  /** Run time after which an agent's next exit counts as the first. */
  restartResetMs: 60_000,
  /** Value of a secret: one variable of a program. */
  secretValueBytes: 65_536,
  secretsPerTenant: 1000,
  /** Keys of the E2B protocol. */
  apiKeysPerTenant: 1000,
  /** Builds of templates that are kept, and that run at the same time. */
  templateBuilds: { kept: 1000, running: 4 },
  poolList: { default: 10, max: 1000 },
  /** A file of an upload. */
  fileUploadBytes: 512 * 1024 * 1024,
  /** A path inside a sandbox, in bytes: the maximum of Linux. */
  filePathBytes: 4096,
  /** Ratio of unpacked to packed size of an archive. Deflate reaches 1032 with only zeros, code about 20. */
  unpackRatio: 200,
  /** Size that any archive may unpack to, however small it is. */
  unpackFreeBytes: 64 * 1024 * 1024,
  /** A path of the host that a caller names. */
  hostPathChars: 4096,
  /** Mounts of a single create, and of a single function. */
  mounts: 100,
  /** Nested directories in a copy of code and in an archive. */
  treeDepth: 128,
  /** A list of files: its depth and its length. */
  fileList: { maxDepth: 64, maxEntries: 10_000 },
  /** Requests of a connection that wait until an earlier one is answered. */
  pipelinedRequests: 64,
  /**
   * Expensive reads (whole logs, long lists, trees of files) and followed logs that may be open at a time.
   */
  openScans: { perTenant: 32, inAll: 128 },
  openFollowers: { perTenant: 512, inAll: 2048 },
  /** The newest events that `GET /api/events` keeps for all tenants together. */
  keptEvents: 4096,
  /** Agents, and functions, that have a call history of their own. */
  historySubjects: 512,
  /** Bytes of a single read of a log; a follower that does not read holds as many. */
  logChunkBytes: 16 * 1024,
  /** A longer line of a log is split into pieces. */
  logLineBytes: 64 * 1024,
  /** Bytes held for all followers of merged function logs that do not read. */
  waitingLogBytes: 64 * 1024 * 1024,
  /** Time for the head of a request, and for a whole request with its body, to arrive. */
  headersArrivalMs: 60_000,
  requestArrivalMs: 300_000,
  /** Longest pause within an upload or a download. */
  fileIdleMs: 300_000,
  /** Longest time in which a WebSocket reader of a job's log may read nothing. */
  tailIdleMs: 60_000,
  /** A WebSocket message of a caller. */
  socketMessageBytes: 1024 * 1024,
  /** Longest silence of a terminal or a byte channel. */
  channelIdleMs: 4 * 60 * 60 * 1000,
  /** Time to connect to a port inside a sandbox. */
  dialTimeoutMs: 10_000,
  /** Longest pause within a request to a port inside a sandbox, or within its answer. */
  passIdleMs: 900_000,
  /**
   * Tokens in a request to a port inside a sandbox. The service checks each, so that no platform token
   * reaches the sandbox.
   */
  passTokens: 4,
  /**
   * Head, headers and preceding interim answers (1xx) of an answer from a port inside a sandbox.
   */
  passHeadBytes: 16 * 1024,
  passHeaders: 500,
  passInterimAnswers: 16,
  /** Validity of a signed link to an address. */
  linkSeconds: { min: 10, default: 3600, max: 7 * 24 * 60 * 60 },
  /** Connections to one other replica, which is the number of requests forwarded there at a time. */
  peerConnections: 4096,
  /** Time to connect to another replica, including the handshake. */
  peerConnectMs: 2000,
  /** Concurrent connections of a single published port of a process sandbox. */
  portConnections: 512,
  /** Concurrent connections of all published ports together, including UDP callers. */
  portConnectionsInAll: 4096,
  /** Datagrams that one published UDP port holds in each direction while the system accepts none. */
  portUdpQueueBytes: 1024 * 1024,
  /** Callers that one published UDP port tracks at a time, and the longest silence of a caller. */
  portUdpCallers: 256,
  portUdpIdleMs: 60_000,
  /** A message of the E2B services `process.Process` and `filesystem.Filesystem`. */
  e2bMessageBytes: 8 * 1024 * 1024,
  /** Entries of a directory list of the E2B services. */
  e2bFileList: { maxEntries: 100_000 },
  /** Time without a poll after which a polled watcher of an E2B sandbox may be replaced by another. */
  e2bWatcherIdleMs: 600_000,
  /** Kept stdout of a command of an MCP tool, and of its stderr, each. */
  mcpOutputBytes: 1024 * 1024,
  /** A file that an MCP tool returns, and what a cell of code shows. */
  mcpFileBytes: 4 * 1024 * 1024,
  /** Descriptions and schemas on a page of the MCP tool list. */
  mcpListBytes: 4 * 1024 * 1024,
  /** The largest frame of the runtime protocol: a body or a result, and space for its header. */
  frameBytes: 7 * 1024 * 1024,
  /** Unfinished frames of all runtimes together. */
  unfinishedFrameBytes: 256 * 1024 * 1024,
  /** Events of all streams together that wait for callers that do not read. */
  waitingEventBytes: 256 * 1024 * 1024,
  /** A runtime's text about a failure, in an answer or a record. */
  callErrorChars: 64 * 1024,
  /** A runtime's text about a failure, in a log line. */
  loggedErrorChars: 2048,
} as const;

import { LIMITS } from '../src/core/limits.ts';

type Limit = (typeof LIMITS)[keyof typeof LIMITS];

/**
 * Text and format of each limit for the page. A new limit in the code does not compile without a row here.
 */
const ROWS: {
  readonly [name in keyof typeof LIMITS]: readonly [what: string, show: (value: (typeof LIMITS)[name]) => string];
} = {
  requestBodyBytes: ['Body of a create request and of every meta_service request; above it 413', bytes],
  invokeBodyBytes: ['Body of an invoke; above it 413', bytes],
  lambdaZipBytes: ['Code that a client of AWS Lambda sends; above it 413', bytes],
  lambdaLayers: ['Layers of a function with the runtime `lambda`', String],
  responseBodyBytes: ['Result of a handler, as JSON; above it the call fails with 4004', bytes],
  jsonLevels: [
    'Nested arrays and objects in an event or a result; above it 400 (functions 200400), or 4007',
    levels => `${levels} levels`,
  ],
  jsonNumberDigits: ['Digits of a number in an event or a result; above it 400 (200400), or 4007', String],
  stateBytes: ['State of a durable agent, as JSON; above it the call fails with 4004', bytes],
  stateLevels: [
    'Nested arrays and objects in the state of a durable agent; above it 4007',
    levels => `${levels} levels`,
  ],
  keepAwakeSeconds: ['`keep_awake` of a durable agent', seconds],
  alarms: [
    'Alarms of a durable agent',
    ({ perAgent, payloadBytes, leastEverySeconds }) =>
      `${perAgent}; payloads of ${bytes(payloadBytes)}; intervals of at least ${seconds(leastEverySeconds)}`,
  ],
  variableBytes: [
    'One `NAME=value` of an environment, and one argument of a command; above it 400, on the meta_service 4104',
    value => `${value} bytes`,
  ],
  traceIdChars: ['`X-Trace-Id`; a longer one is cut', characters],
  agentNameChars: ['`namespace` and `name` of an agent', characters],
  idempotencyKeyChars: ['`Idempotency-Key`', characters],
  idempotencyKeepMs: ['Lifetime of an idempotency key', duration],
  cpuMillis: ['`cpu`, in thousandths of a core', range],
  memoryMb: ['`memory`, in MB', range],
  agentList: ['Agents on one page of the list', page],
  callList: ['Calls on one page of the history', page],
  callTextChars: ['Text that the history of calls is searched for', characters],
  recordingSeconds: ['Time of a recording of all calls, in seconds', range],
  recordingsPerTenant: ['Recordings of a tenant; above it 429', String],
  recordedBodyBytes: ['Input, and output, of a call during a recording; above it cut', bytes],
  callSpans: [
    'Spans of a call; what is above is dropped and counted',
    ({ count, nameChars, attributes, keyChars, valueChars, chars }) =>
      `${count}; names of ${nameChars} characters; ${attributes} attributes with names of ${keyChars} and values of ${valueChars}; ${chars} in all`,
  ],
  callSpansBytes: [
    'Spans of a call as JSON, in its record; the last ones above it are dropped and counted',
    ({ stored }) => bytes(stored),
  ],
  inlineInvokeTimeoutMs: ['One call of an agent, including waiting', duration],
  initializerTimeoutMs: ['Initializer; above it the code is not loaded (4211)', duration],
  deleteGraceMs: ['Default time of a delete for `pre_stop` and the end', duration],
  deleteGraceMaxSeconds: ['`?grace=` of a delete', seconds],
  labels: [
    'Labels of an agent',
    ({ count, nameChars, valueChars }) => `${count}; names of ${nameChars} and values of ${valueChars} characters`,
  ],
  lifetimeSeconds: ['`ttl_seconds` and `idle_seconds` of an agent', ({ max }) => seconds(max)],
  forks: ['`count` of a fork', value => `${value}`],
  execTimeoutSeconds: [
    '`timeout` of an exec',
    ({ default: usual, max }) => `${seconds(usual)}, at most ${seconds(max)}`,
  ],
  execOutputBytes: ['Kept stdout of an exec, and the same of its stderr', bytes],
  openFiles: ['Open files of a process in a sandbox', String],
  logFileBytes: ['One log file of an instance', bytes],
  logFiles: ['Log files of an instance; the oldest is dropped', String],
  functionTimeoutSeconds: [
    '`timeout` of a function',
    ({ default: usual, max }) => `${seconds(usual)}, at most ${seconds(max)}`,
  ],
  functionPreStopSeconds: ['`extendedTimeout.pre_stop` of a function', seconds],
  functionInputSchemaBytes: ['`inputSchema` of a function, as JSON', bytes],
  functionDescriptionChars: ['`description` of a function, and of a version', characters],
  functionInstances: [
    '`minInstance` and `maxInstance` of a function, and of reserved instances',
    ({ defaultMin, defaultMax, max }) => `${defaultMin} and ${defaultMax}, at most ${max}`,
  ],
  functionConcurrency: ['`concurrentNum` of a function', ({ default: usual, max }) => `${usual}, from 1 to ${max}`],
  publishedVersions: ['Published versions of a function; above it 4110', String],
  reservedLabels: ['Labels of reserved instances per function version', String],
  reservedLabelChars: ['`instanceLabel`', characters],
  clusterIdChars: ['`clusterId`', characters],
  functionList: ['Functions and versions on one page of a list', page],
  jobEntrypointBytes: ['`entrypoint` of a job', bytes],
  jobSettingsBytes: ['`runtime_env` and `metadata` of a job, together and as JSON', bytes],
  jobNesting: ['Nested objects and arrays in the body of a job', levels => `${levels} levels`],
  previousLogs: [
    'Logs of the runs of an agent before its restarts',
    ({ runs, lines, bytes: most }) => `of ${runs} runs, the last ${lines} lines, at most ${bytes(most)} of each`,
  ],
  restartsInRow: [
    'Restarts of an agent by its policy `on-failure`, in a row',
    ({ default: usual, max }) => `${usual}, at most ${max}`,
  ],
  longestRestartPauseMs: ['Pause before a restart by policy', duration],
  restartResetMs: ['Uptime after which restarts in a row are counted anew', duration],
  secretValueBytes: ['The value of a secret', bytes],
  secretsPerTenant: ['Secrets of a tenant; above it 429', String],
  apiKeysPerTenant: ['Keys of a tenant for the E2B protocol and AWS clients together; above it 429', String],
  templateBuilds: [
    'Builds of templates of a tenant that are kept, and that run at a time; above it 429',
    ({ kept, running }) => `${kept}; ${running}`,
  ],
  poolList: ['Pools on one page of the list', page],
  fileUploadBytes: ['One file of an upload into a sandbox; above it 413', bytes],
  filePathBytes: ['A path inside a sandbox', value => `${value} bytes`],
  unpackRatio: ['An archive of code or of a job, unpacked', value => `${value} times its size`],
  unpackFreeBytes: ['An archive of code or of a job, unpacked, whatever its size', bytes],
  hostPathChars: ['A host path in a request', value => `${value} characters`],
  mounts: ['Mounts of a create, and of a function', value => `${value}`],
  treeDepth: ['Nested directories in a copy of code or an archive', value => `${value}`],
  fileList: [
    'One list of the files of a sandbox',
    ({ maxDepth, maxEntries }) => `${maxEntries} entries, ${maxDepth} directories deep`,
  ],
  pipelinedRequests: ['Requests that wait behind another one on a connection; one more closes it', String],
  openScans: [
    'Concurrent reads of whole logs, long lists and file trees: for one tenant; for all; above it 429',
    ({ perTenant, inAll }) => `${perTenant}; ${inAll}`,
  ],
  openFollowers: [
    'Concurrently followed logs: for one tenant; for all; above it 429',
    ({ perTenant, inAll }) => `${perTenant}; ${inAll}`,
  ],
  keptEvents: ['Events of `GET /api/events` kept for readers that reconnect, all tenants together', String],
  historySubjects: ['Agents, and functions, with a call history of their own', String],
  logChunkBytes: ['Log data read at once; the most that a follower that does not read buffers', bytes],
  logLineBytes: ['A line of a log; longer lines are split', bytes],
  waitingLogBytes: [
    'Buffered log data of slow followers of function versions, all together; above it the largest is disconnected',
    bytes,
  ],
  headersArrivalMs: ['Arrival of the head of a request; then 408', duration],
  requestArrivalMs: ['Arrival of a whole request; then 408', duration],
  fileIdleMs: ['Stall of an upload or a download', duration],
  tailIdleMs: ['Stall of a client that reads the log of a job over a WebSocket', duration],
  socketMessageBytes: ['One WebSocket message of a caller', bytes],
  channelIdleMs: ['Silence of a terminal or a byte channel', duration],
  dialTimeoutMs: ['Connecting to a port inside a sandbox', duration],
  passIdleMs: ['Stall of a request to a port inside a sandbox, or of its answer', duration],
  passTokens: [
    'Tokens of a request to a port inside a sandbox, in `X-Auth`, `Authorization` and the query of a WebSocket, with authentication on; above it 400',
    String,
  ],
  passHeadBytes: ['The head of an answer from a port inside a sandbox; above it 502', kibibytes],
  passHeaders: ['Headers of such an answer; above it 502', String],
  passInterimAnswers: ['Interim answers (1xx) before such an answer, which are dropped; above it 502', String],
  linkSeconds: [
    'Lifetime of a signed link, in seconds',
    ({ min, default: usual, max }: typeof LIMITS.linkSeconds) => `${min} to ${max}, default ${usual}`,
  ],
  peerConnections: ['Concurrent requests forwarded to one other replica; above it 503', String],
  peerConnectMs: ['Connecting to another replica; then 503', duration],
  portConnections: ['Concurrent connections through one published port of a process sandbox', String],
  portConnectionsInAll: [
    'Concurrent connections and UDP callers through all published ports of process sandboxes',
    String,
  ],
  portUdpQueueBytes: ['Buffer of a published UDP port in each direction; datagrams above it are lost', bytes],
  portUdpCallers: ['Concurrent callers of one published UDP port; above it the longest silent one is dropped', String],
  portUdpIdleMs: ['Silence of a caller of a published UDP port', duration],
  e2bMessageBytes: ['One message of the E2B services for processes and files', bytes],
  e2bFileList: ['Entries of a directory list of the E2B services', ({ maxEntries }) => String(maxEntries)],
  mcpOutputBytes: ['Kept stdout of a command of an MCP tool, and the same of its stderr', bytes],
  mcpFileBytes: ['A file that an MCP tool returns, and what a cell of code shows', bytes],
  mcpListBytes: ['Descriptions and schemas on a page of the MCP tool list', bytes],
  e2bWatcherIdleMs: [
    'Time without a poll after which a directory watcher of the E2B services may be replaced',
    duration,
  ],
  frameBytes: ['One frame of the runtime protocol', bytes],
  unfinishedFrameBytes: ['Unfinished frames of all runtimes together', bytes],
  waitingEventBytes: ['Events of all streams that wait for slow clients', bytes],
  callErrorChars: ['Error text of user code, in characters; longer texts are cut', String],
  loggedErrorChars: ['The same in a log line', String],
};

/** Returns docs/reference/limits.md. */
export function limitsPage(): string {
  const lines = [
    '# Limits',
    '',
    '<!-- Made from src/core/limits.ts by `npm run generate`. Do not edit. -->',
    '',
    'These limits are fixed; [configuration.md](configuration.md) lists those that an operator can change.',
    '',
    '| What | Limit |',
    '|---|---|',
  ];
  for (const [name, [what, show]] of Object.entries(ROWS) as [
    keyof typeof LIMITS,
    readonly [string, (value: Limit) => string],
  ][]) {
    lines.push(`| ${what} | ${show(LIMITS[name])} |`);
  }
  return `${lines.join('\n')}\n`;
}

function bytes(value: number): string {
  const kib = value / 1024;
  return kib % 1024 === 0 ? `${kib / 1024} MiB` : `${kib} KiB`;
}

function kibibytes(value: number): string {
  return `${value / 1024} KiB`;
}

function characters(value: number): string {
  return `${value} characters`;
}

function seconds(value: number): string {
  return duration(value * 1000);
}

function duration(ms: number): string {
  const [unit, size] = (
    [
      ['day', 86_400_000],
      ['hour', 3_600_000],
      ['minute', 60_000],
      ['second', 1000],
    ] as const
  ).find(([, length]) => ms >= length && ms % length === 0) ?? ['millisecond', 1];
  const count = ms / size;
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}

function range({
  min,
  max,
  default: usual,
}: {
  readonly min: number;
  readonly max: number;
  readonly default: number;
}): string {
  return `${min} to ${max}, default ${usual}`;
}

function page({ default: usual, max }: { readonly default: number; readonly max: number }): string {
  return `${usual}, at most ${max}`;
}

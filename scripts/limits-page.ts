import { LIMITS } from '../src/core/limits.ts';

type Limit = (typeof LIMITS)[keyof typeof LIMITS];

/** What each limit means, for people. A limit that is added to the code does not compile until it has its row here. */
const ROWS: {
  readonly [name in keyof typeof LIMITS]: readonly [what: string, show: (value: (typeof LIMITS)[name]) => string];
} = {
  requestBodyBytes: ['Body of a create request and of every meta_service request; above it 413', bytes],
  invokeBodyBytes: ['Body of an invoke; above it 413', bytes],
  responseBodyBytes: ['What a handler may return, as JSON; above it the call fails with 4004', bytes],
  traceIdChars: ['`X-Trace-Id`; a longer one is cut', characters],
  agentNameChars: ['`namespace` and `name` of an agent', characters],
  idempotencyKeyChars: ['`Idempotency-Key`', characters],
  idempotencyKeepMs: ['How long an idempotency key is remembered', duration],
  cpuMillis: ['`cpu`, in thousandths of a core', range],
  memoryMb: ['`memory`, in MB', range],
  agentList: ['Agents on one page of the list', page],
  inlineInvokeTimeoutMs: ['One call of an agent, waiting included', duration],
  initializerTimeoutMs: ['The initializer; above it the code counts as not loaded (4211)', duration],
  deleteGraceMs: ['What a delete gives to `pre_stop` and the end, when nothing else is said', duration],
  deleteGraceMaxSeconds: ['`?grace=` of a delete', seconds],
  execTimeoutSeconds: [
    '`timeout` of an exec',
    ({ default: usual, max }) => `${seconds(usual)}, at most ${seconds(max)}`,
  ],
  execOutputBytes: ['What is kept of the stdout of an exec, and as much of its stderr', bytes],
  openFiles: ['Open files of a process in a sandbox', String],
  logFileBytes: ['One log file of an instance', bytes],
  logFiles: ['Log files of an instance; the oldest is dropped', String],
  functionTimeoutSeconds: [
    '`timeout` of a function',
    ({ default: usual, max }) => `${seconds(usual)}, at most ${seconds(max)}`,
  ],
  functionPreStopSeconds: ['`extendedTimeout.pre_stop` of a function', seconds],
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
  jobNesting: [
    'How deep objects and arrays in the body of a job may stand in each other',
    levels => `${levels} levels`,
  ],
  previousLogs: [
    'Logs of the runs of an agent before its restarts',
    ({ runs, lines, bytes: most }) => `of ${runs} runs, the last ${lines} lines, at most ${bytes(most)} of each`,
  ],
  restartsInRow: [
    'Restarts of an agent by its policy `on-failure`, in a row',
    ({ default: usual, max }) => `${usual}, at most ${max}`,
  ],
  longestRestartPauseMs: ['Pause before a restart by policy', duration],
  restartResetMs: ['An agent that has run so long begins a new row of restarts', duration],
  secretValueBytes: ['The value of a secret', bytes],
  secretsPerTenant: ['Secrets of a tenant; above it 429', String],
  poolList: ['Pools on one page of the list', page],
  fileUploadBytes: ['One file of an upload into a sandbox; above it 413', bytes],
  filePathBytes: ['A path inside a sandbox', value => `${value} bytes`],
  hostPathChars: ['A path of the host that a caller names', value => `${value} characters`],
  mounts: ['Mounts of a create, and of a function', value => `${value}`],
  treeDepth: ['Directories in directories, in a copy of code and in an archive', value => `${value}`],
  fileList: [
    'One list of the files of a sandbox',
    ({ maxDepth, maxEntries }) => `${maxEntries} entries, ${maxDepth} directories deep`,
  ],
  pipelinedRequests: ['Requests that one connection may send ahead of its answers; with one more it is closed', String],
  openScans: [
    'Whole logs, long lists and trees of files that are read at a time: of one tenant, and in all; above it 429',
    ({ perTenant, inAll }) => `${perTenant}; ${inAll}`,
  ],
  openFollowers: [
    'Logs that are followed at a time: of one tenant, and in all; above it 429',
    ({ perTenant, inAll }) => `${perTenant}; ${inAll}`,
  ],
  keptEvents: ['Events of `GET /api/events` that are kept for readers who come back, all tenants together', String],
  historySubjects: ['Agents, and functions, whose calls have a history of their own', String],
  logChunkBytes: ['What is read of a log at a time: what one follower holds that does not read', bytes],
  logLineBytes: ['A line of a log; a longer one comes in pieces', bytes],
  waitingLogBytes: [
    'What all followers of the logs of function versions hold that do not read; above it the one that holds the most for the longest is cut off',
    bytes,
  ],
  headersArrivalMs: ['How long the head of a request may take to arrive; then 408', duration],
  requestArrivalMs: ['How long a whole request may take to arrive; then 408', duration],
  fileIdleMs: ['How long an upload or a download may stand still', duration],
  tailIdleMs: ['How long the reader of the log of a job over a WebSocket may take nothing of it', duration],
  socketMessageBytes: ['One WebSocket message that a caller sends', bytes],
  channelIdleMs: ['How long a terminal or a byte channel may be silent', duration],
  dialTimeoutMs: ['How long the connection to a port inside a sandbox may take', duration],
  passIdleMs: ['How long a request to a port inside a sandbox, or its answer, may stand still', duration],
  passTokens: [
    'Tokens of a request to a port inside a sandbox, in `X-Auth`, `Authorization` and the query of a WebSocket, with authentication on; above it 400',
    String,
  ],
  passHeadBytes: ['The head of an answer from a port inside a sandbox; above it 502', kibibytes],
  passHeaders: ['Headers of such an answer; above it 502', String],
  passInterimAnswers: ['Interim answers (1xx) before such an answer, which are dropped; above it 502', String],
  linkSeconds: [
    'How long a signed link to an address may hold, seconds',
    ({ min, default: usual, max }: typeof LIMITS.linkSeconds) => `${min} to ${max}, default ${usual}`,
  ],
  peerConnections: ['Requests that are forwarded to one other replica at a time; above it 503', String],
  peerConnectMs: ['How long a connection to another replica may take; then 503', duration],
  portConnections: ['Connections through one published port of a process sandbox at a time', String],
  portConnectionsInAll: [
    'Connections and UDP callers through all published ports of process sandboxes at a time',
    String,
  ],
  portUdpQueueBytes: ['What one published UDP port holds in each direction; datagrams above it are lost', bytes],
  portUdpCallers: [
    'Callers of one published UDP port at a time; above it the one that is silent the longest is forgotten',
    String,
  ],
  portUdpIdleMs: ['How long a caller of a published UDP port may be silent', duration],
  frameBytes: ['One frame of the runtime protocol', bytes],
  unfinishedFrameBytes: ['Frames of all runtimes together that have begun and not ended', bytes],
  waitingEventBytes: ['Events of all streams together that wait for callers who do not read', bytes],
  callErrorChars: ['Text of a failure of user code, in characters; longer ones are cut', String],
  loggedErrorChars: ['The same in a line of the log', String],
};

/** docs/limits.md */
export function limitsPage(): string {
  const lines = [
    '# Limits',
    '',
    '<!-- Made from src/core/limits.ts by `npm run generate`. Do not edit. -->',
    '',
    'These are fixed. What an operator may change is in [configuration.md](configuration.md).',
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

import { type AlarmChange, readAlarm } from '../../src/core/alarm.ts';
import { readRegister, readUpdate } from '../../src/core/function.ts';
import type { JsonObject } from '../../src/core/json.ts';
import { POOL_STATUS, readPool } from '../../src/core/pool.ts';
import { formatTimestamp, nextRevisionId } from '../../src/core/revision.ts';
import { formatUrn, LATEST } from '../../src/core/urn.ts';
import { toStored } from '../../src/registry/function-record.ts';
import { WRITE_OPERATIONS } from '../../src/server/write-operations.ts';
import type { JobDraft } from '../../src/storage/queries/job-submits.ts';
import type { Random } from '../parts/random.ts';
import { storedInstance } from '../parts/stored-instance.ts';

export type OperationName = keyof typeof WRITE_OPERATIONS;

/** A durable write with its arguments. The races run two of them against each other. */
export interface Step {
  readonly name: OperationName;
  readonly args: readonly unknown[];
}

const NOW_MS = Date.UTC(2026, 10, 20);
const T = 'default';
// The first item of each list is chosen most often, so that two operations often compete.
const NAMES = ['0@race@a', '0@race@a', '0@race@a', '0@race@b'] as const;
const VERSIONS = ['v1', 'v1', 'v2'] as const;
const LABELS = ['l1', 'l1', 'l2'] as const;
const POOLS = ['pool-1', 'pool-1', 'pool-2'] as const;
const JOBS = [1, 1, 1, 2] as const;
const CALLS = ['call-1', 'call-1', 'call-2'] as const;
const SCHEDULES = ['s-1', 's-1', 's-2'] as const;
const BUILDS = ['build-1', 'build-1', 'build-2', 'build-3'] as const;
const TEMPLATES = ['t-a', 't-a', 't-b'] as const;
const ALARMS = ['a-1', 'a-1', 'a-2'] as const;
const API_KEYS = ['key-1', 'key-1', 'key-2', 'key-3'] as const;
const CLUSTERS = ['cluster001', 'cluster002'];
/** Revision of a function that was registered and never updated. */
const REVISION = nextRevisionId(NOW_MS, null);

function checked<T>(
  read: { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problems: readonly string[] },
): T {
  if (!read.ok) throw new Error(read.problems.join('; '));
  return read.value;
}

const LOCAL_CODE = { storageType: 'local', codePath: '/opt/code' };

function rowOf(name: string, minInstance: number) {
  // One of the names uses a package, which a concurrent operation may store or remove.
  const place = name.endsWith('b') ? { storageType: 'package', codePath: `code://${CONTENTS[0]}` } : LOCAL_CODE;
  // Another name uses a secret.
  const environment: JsonObject = name.endsWith('a') ? {} : { KEY: { secret: SECRETS[0] } };
  const code = { handler: 'app.handle', environment, ...place };
  const spec = checked(
    readRegister({ name, kind: 'faas', runtime: 'python3.11', cpu: 500, memory: 512, minInstance, ...code }),
  );
  const urn = formatUrn({ business: 'yrk', tenant: T, name, version: LATEST });
  const times = { createTime: formatTimestamp(NOW_MS), publishTime: '', updateTime: '' };
  const version = {
    tenant: T,
    business: 'yrk',
    version: LATEST,
    urn,
    revisionId: REVISION,
    versionDesc: '',
    ...times,
    spec,
  };
  return { ...toStored(version), default_published_at_ms: 0 };
}

const RESOURCES = { requests: { cpu: '500m', memory: '512Mi' }, limits: { cpu: '1000m', memory: '1Gi' } };
const poolOf = (id: string, group: string) =>
  checked(readPool({ id, group, resources: RESOURCES, size: 1, max_size: 3 }));

const CONTENTS = ['a'.repeat(64), 'a'.repeat(64), 'b'.repeat(64)] as const;
const BLOBS = ['blob-1', 'blob-1', 'blob-2'] as const;
const SECRETS = ['s-a', 's-a', 's-b'] as const;
const KEYS = ['k1', 'k2'] as const;
const NODES = ['node', 'other'] as const;
const PACKAGES = ['p.zip', 'q.zip'] as const;
const BOUNDS = { maxOpen: 3, maxOpenPerTenant: 3 };

function callRowOf(id: string, startedAtMs: number) {
  const names = { instance_id: '', node_id: 'node', caller: '', trace_id: 't' };
  const times = { elapsed_us: 1, queue_us: 0, place_us: 0, start_us: 0, load_us: 0, run_us: 0 };
  const sizes = { input_bytes: 2, output_bytes: 2, input_cut: 0, output_cut: 0, bytes: 700 };
  const subject = { kind: 'agent', subject: 'a', name: 'default/a', version: '', mode: 'async' };
  const end = { outcome: 'ok', code: 'ok', error: '', input: '{}', output: '{}', started_at_ms: startedAtMs };
  return { id, tenant: T, ...names, ...times, ...sizes, ...subject, ...end };
}

/** Draft of a job. Without its own time, the first job is number 1. */
const jobOf = (id: string, nodeId: string, packages: readonly string[]): JobDraft => ({
  ...{ tenant: T, id, status: 'PENDING', message: '', errorType: '', exitCode: null },
  spec: {
    runtimeEnv: {
      // Some of the jobs use a secret.
      envVars: id.endsWith('2') ? { KEY: { secret: SECRETS[0] } } : {},
      workingDir: null,
      pyModules: packages.map(name => ({ kind: 'package', name })),
      pip: null,
    },
  } as unknown as JobDraft['spec'],
  ...{ attempt: 1, nodeId, nodeEpoch: 1, isForAnother: false, instanceId: '', pid: '' },
  ...{ submittedAtMs: 0, startedAtMs: null, endedAtMs: null },
});

const somePackages = (random: Random) => PACKAGES.filter(() => random.chance(0.3));
const alarmChange = (random: Random): AlarmChange => {
  const name = random.pick(ALARMS);
  const alarm = readAlarm({ every: 60 }, name, random.pick(['i-1', 'i-2']), NOW_MS);
  return random.pick<AlarmChange>([
    { kind: 'put', alarm },
    { kind: 'drop', name },
    { kind: 'drop', name, id: 'i-1' },
    { kind: 'change', name, id: 'i-1', to: { attempt: 1 } },
  ]);
};

const placeOf = (random: Random) => ({
  ...{ tenant: T, name: random.pick(PACKAGES), node_id: random.pick(['', ...NODES]) },
  object: random.pick(['', 'o-1']),
});
const packageOf = (random: Random) => ({
  ...{ ...placeOf(random), node_epoch: random.pick([1, 2]), bytes: random.below(9) },
  ...{ sha256: '', used_at_ms: NOW_MS + random.below(9) },
});

/** Arguments for each operation; a missing operation is a compile error. */
const ARGUMENTS: { readonly [Name in OperationName]: (random: Random) => readonly unknown[] } = {
  registerFunction: random => [rowOf(random.pick(NAMES), random.below(3)), NOW_MS],
  publishFunction: random => [
    ...[T, random.pick(NAMES)],
    {
      revisionId: REVISION,
      versionNumber: random.pick(['', ...VERSIONS]),
      versionDesc: `d${random.below(9)}`,
      kind: '',
    },
    NOW_MS + random.below(3) * 5000,
  ],
  updateFunction: random => [
    ...[T, random.pick(NAMES)],
    checked(readUpdate({ revisionId: REVISION, cpu: 300 + random.below(9) })),
    NOW_MS + 1000 + random.below(1000),
  ],
  deleteFunction: random => [T, random.pick(NAMES), random.pick([null, ...VERSIONS])],
  writeReservation: random => [
    T,
    {
      ...{
        funcName: random.pick(NAMES),
        version: random.pick([LATEST, ...VERSIONS]),
        instanceLabel: random.pick(LABELS),
      },
      clusters: [{ clusterId: random.pick(CLUSTERS), minInstance: random.below(3), maxInstance: 3 + random.below(3) }],
    },
    random.pick(['put', 'update']),
    CLUSTERS,
  ],
  dropReservations: random => [
    { tenant: T, name: random.pick(NAMES), version: random.pick([LATEST, ...VERSIONS]) },
    random.pick([null, ...LABELS]),
  ],
  createPools: random => [[random.pick(POOLS), random.pick(POOLS)].map(id => poolOf(id, random.pick(['g', 'h'])))],
  changePool: random => [random.pick(POOLS), { size: 1 + random.below(3) }],
  removePools: random => [
    random.pick([
      { id: random.pick(POOLS), group: '' },
      { id: '', group: random.pick(['g', 'h']) },
    ]),
  ],
  reportSeen: random => [
    random.pick(POOLS),
    { status: random.pick(Object.values(POOL_STATUS)), msg: `m${random.below(9)}`, readyCount: random.below(3) },
  ],
  removeDeleted: random => [random.pick(POOLS)],
  insertInstanceUnder: random => [
    null,
    storedInstance({ id: `f-${random.below(3)}`, owner: { kind: 'function', key: 'u' } }),
  ],
  saveAgentState: random => {
    const version = 1 + random.below(3);
    return [
      { id: `f-${random.below(3)}`, epoch: 1, nodeId: random.pick(NODES) },
      { version, schema: 1, bytes: 7, state: `{"n":${version}}`, saved_at_ms: NOW_MS },
      random.pick([[], [alarmChange(random)]]),
    ];
  },
  changeAgentAlarms: random => [`f-${random.below(3)}`, [alarmChange(random)]],
  insertSleepingAgent: random => [
    storedInstance({ id: `f-${random.below(3)}`, status: 'SLEEPING', owner: { kind: 'agent', key: 'k' } }),
    { namespace: 'ns', name: random.pick(NAMES), idempotency: undefined },
    random.pick([null, { version: 1, schema: 1, bytes: 7, state: '{"n":1}', saved_at_ms: NOW_MS }]),
    random.pick([[], [readAlarm({ after: 60 }, random.pick(ALARMS), 'x', NOW_MS)]]),
  ],
  changeAgentSpec: random => [
    { id: `f-${random.below(3)}`, epoch: 1, nodeId: random.pick(NODES) },
    `{"n":${random.below(3)}}`,
  ],
  takeAgentName: random => [
    { id: `f-${random.below(3)}`, epoch: 1, nodeId: random.pick(NODES) },
    { startedAtMs: NOW_MS },
    { tenant: T, namespace: 'ns', name: random.pick(NAMES) },
  ],
  insertAsyncCall: random => [
    {
      ...{ id: random.pick(CALLS), tenant: T, urn: 'u', status: 'queued', request: '{}', body: new Uint8Array([1, 2]) },
      ...{
        webhook_url: '',
        result: null,
        error: null,
        created_at_ms: NOW_MS,
        completed_at_ms: null,
        shard: 'shard-00',
        lease_epoch: 0,
      },
    },
    null,
  ],
  claimAsyncCall: random => [random.pick(CALLS), null],
  finishAsyncCall: random => [
    random.pick(CALLS),
    null,
    {
      status: random.pick(['completed', 'failed']),
      result: `${random.below(9)}`,
      error: null,
      completed_at_ms: NOW_MS + random.below(9),
    },
  ],
  insertJobSchedule: random => {
    const secrets = SECRETS.filter(() => random.chance(0.2));
    return [
      {
        ...{
          tenant: T,
          id: random.pick(SCHEDULES),
          cron: `${random.below(60)} * * * *`,
          timezone: 'UTC',
          overlap: 'skip',
        },
        submission: JSON.stringify(secrets.map(secret => ({ secret }))),
        ...{ created_at_ms: NOW_MS, decided_until_ms: NOW_MS },
      },
      secrets,
      random.pick([1, 10]),
    ];
  },
  putJobSchedule: random => ARGUMENTS.insertJobSchedule(random),
  deleteJobSchedule: random => [T, random.pick(SCHEDULES)],
  insertJob: random => [
    jobOf(`job-${random.pick(JOBS)}`, random.pick(NODES), somePackages(random)),
    `f${random.below(9)}`,
    BOUNDS,
  ],
  insertScheduledJob: random => [
    null,
    {
      ...{ scheduleId: random.pick(SCHEDULES), createdAtMs: NOW_MS, atMs: NOW_MS + 1000 * random.below(3) },
      unlessOpen: random.pick([null, 'job-']),
    },
    jobOf(`job-${random.pick(JOBS)}`, random.pick(NODES), []),
    `f${random.below(9)}`,
    BOUNDS,
  ],
  ownJobs: random => [{ nodeId: random.pick(NODES), epoch: random.pick([1, 2]) }],
  takeFreeJob: random => [random.pick(JOBS), { nodeId: random.pick(NODES), epoch: 1 }],
  failJobsOfNode: random => [random.pick(NODES), random.pick([1, 2]), 'It was lost.', NOW_MS],
  markLogStored: random => [random.pick(JOBS)],
  putJobPackage: random => [packageOf(random), random.pick([1, 10])],
  useJobPackage: random => [T, random.pick(PACKAGES), NOW_MS + random.below(9)],
  dropJobPackage: random => [placeOf(random), NOW_MS + random.below(9)],
  replacePackagesOfNode: random => {
    const nodeId = random.pick(NODES);
    const names = PACKAGES.filter(() => random.chance(0.5));
    return [nodeId, names.map(name => ({ ...packageOf(random), name, node_id: nodeId }))];
  },
  putCodePackage: random => [
    {
      ...{
        tenant: T,
        sha256: random.pick(CONTENTS),
        place: 'database',
        blob: random.pick(BLOBS),
        bytes: random.below(9),
      },
      ...{ created_at_ms: NOW_MS, used_at_ms: NOW_MS + random.below(9) },
    },
    random.pick([9, 1000]),
  ],
  countUnpackedCode: random => [T, random.pick(CONTENTS), random.below(9)],
  useCodePackage: random => [T, random.pick(CONTENTS), NOW_MS + random.below(9)],
  dropCodePackage: random => [
    ...[T, random.pick(CONTENTS), random.pick([null, NOW_MS + random.below(9)]), NOW_MS + random.below(9)],
  ],
  putCodePackagePart: random => [
    { blob: random.pick(BLOBS), part: random.below(2), at_ms: NOW_MS, content: new Uint8Array([1, 2]) },
  ],
  dropLostCodeParts: random => [NOW_MS + random.below(2)],
  insertApiKey: random => {
    const hash = random.pick(API_KEYS);
    return [{ hash, id: hash, tenant: T, role: 'developer', created_at_ms: NOW_MS }, 1 + random.below(2)];
  },
  insertCalls: random => [[callRowOf(random.pick(CALLS), NOW_MS + random.below(2))]],
  dropCalls: random => [T, NOW_MS + random.below(2), random.below(2) * 1000, 1 + random.below(2)],
  putCallRecording: random => {
    const times = { started_at_ms: NOW_MS + random.below(2), ends_at_ms: NOW_MS + 1 + random.below(3) };
    return [{ tenant: T, kind: 'agent', target: random.pick(CALLS), ...times }, 1 + random.below(2)];
  },
  deleteCallRecording: random => [{ tenant: T, kind: 'agent', target: random.pick(CALLS) }, NOW_MS + random.below(3)],
  deleteApiKey: random => [T, random.pick(API_KEYS)],
  insertTemplateBuild: random => {
    const id = random.pick(BUILDS);
    const name = random.pick(TEMPLATES);
    const texts = { status: 'waiting', reason: '', step: '', tags: '{}', sha256: '', spec: '{}' };
    return [{ id, tenant: T, template_id: id, name, ...texts, created_at_ms: NOW_MS, updated_at_ms: NOW_MS }, 2];
  },
  updateTemplateBuild: random => [
    ...[T, random.pick(BUILDS), { status: random.pick(['building', 'ready']), updated_at_ms: NOW_MS + 1 }],
    random.pick([[], ['t1']]),
  ],
  putTemplateTags: random => [
    { tenant: T, name: random.pick(TEMPLATES), from: 't1', tags: ['t2'], nowMs: NOW_MS + random.below(9) },
  ],
  dropTemplateTags: random => [{ tenant: T, name: random.pick(TEMPLATES), tags: [random.pick(['t1', 't2'])] }],
  deleteTemplate: random => [T, random.pick(TEMPLATES)],
  putTemplateFiles: random => [
    { tenant: T, hash: 'h', sha256: random.pick(CONTENTS), created_at_ms: NOW_MS + random.below(9) },
  ],
  putSecret: random => [
    {
      ...{
        tenant: T,
        name: random.pick(SECRETS),
        key_id: random.pick(KEYS),
        sealed: new Uint8Array([random.below(9)]),
      },
      ...{ created_at_ms: NOW_MS + random.below(3), updated_at_ms: NOW_MS + random.below(3) },
    },
    2,
  ],
  dropSecret: random => [T, random.pick(SECRETS)],
  resealSecret: random => [
    { tenant: T, name: random.pick(SECRETS), key_id: random.pick(KEYS), updated_at_ms: NOW_MS + random.below(3) },
    { key_id: random.pick(KEYS), sealed: new Uint8Array([9]) },
  ],
  lackingSecret: random => [T, [random.pick(SECRETS), random.pick(SECRETS)]],
  claimJob: random => {
    const sequence = random.pick(JOBS);
    const id = `i-${sequence}-${random.below(3)}`;
    const owner = { nodeId: random.pick(NODES), epoch: random.pick([1, 2]) };
    return [sequence, owner, storedInstance({ id, owner: { kind: 'job', key: `${sequence}` } })];
  },
  requeueJob: random => [
    ...[random.pick(JOBS), random.pick(NODES)],
    { attempt: 2 + random.below(3), notBeforeMs: NOW_MS, message: `m${random.below(9)}` },
    { status: 'STOPPED', message: 's', errorType: '', exitCode: null, endedAtMs: NOW_MS },
  ],
  finishJob: random => [
    ...[random.pick(JOBS), random.pick(NODES)],
    {
      status: random.pick(['SUCCEEDED', 'FAILED']),
      message: `e${random.below(9)}`,
      errorType: '',
      exitCode: random.below(3),
      endedAtMs: NOW_MS,
    },
  ],
  setJobStopReason: random => [random.pick(JOBS), random.pick(['stopped', 'timeout'])],
  stopJob: random => [
    ...[random.pick(JOBS), random.pick(NODES)],
    { status: 'STOPPED', message: `s${random.below(9)}`, errorType: '', exitCode: null, endedAtMs: NOW_MS },
  ],
  deleteJob: random => [random.pick(JOBS)],
};

/** Returns a write operation with random arguments. */
export function stepOf(name: OperationName, random: Random): Step {
  return { name, args: ARGUMENTS[name](random) };
}

export const OPERATION_NAMES = Object.keys(WRITE_OPERATIONS) as OperationName[];

/**
 * Operations that create initial data, in a possible order, so that the pairs have records to compete for.
 */
const MAKERS: readonly OperationName[] = [
  ...(['registerFunction', 'registerFunction', 'publishFunction', 'publishFunction', 'writeReservation'] as const),
  ...([
    'writeReservation',
    'createPools',
    'createPools',
    'reportSeen',
    'reportSeen',
    'putJobPackage',
    'putJobPackage',
    'putCodePackage',
    'putCodePackage',
    'insertApiKey',
    'insertTemplateBuild',
    'insertTemplateBuild',
    'updateTemplateBuild',
    'updateTemplateBuild',
    'putSecret',
    'putSecret',
    'insertJob',
    'insertJob',
    'claimJob',
    'failJobsOfNode',
  ] as const),
  ...([
    'finishJob',
    'insertAsyncCall',
    'insertAsyncCall',
    'claimAsyncCall',
    'insertJobSchedule',
    'removePools',
  ] as const),
];

export function makeBefore(random: Random): readonly Step[] {
  return MAKERS.filter(() => random.chance(0.8)).map(name => stepOf(name, random));
}

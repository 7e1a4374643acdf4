import { Check } from 'typebox/schema';
import { describe, expect, test } from 'vitest';
import { readSchedule } from '../jobs/schedules.ts';
import { AGENT_CREATE, readAgentCreate } from './agent.ts';
import { EXEC, readExec } from './exec.ts';
import { AGENT_FORK, readFork } from './fork.ts';
import { FUNCTION_REGISTER, FUNCTION_UPDATE, readRegister, readUpdate } from './function.ts';
import { JOB_SCHEDULE, JOB_SUBMIT, readJobSubmission } from './job.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import type { Kind } from './kind.ts';
import { POOL_UPDATE, POOLS_CREATE, readPool, readPoolUpdate } from './pool.ts';
import type { Checked } from './problem.ts';
import { PROCESS, PROCESS_SIGNAL, readProcess, readProcessSignal } from './process.ts';
import { RESERVATION, readReservation } from './reservation.ts';
import { PUBLISH, readPublish } from './revision.ts';
import { unknownFieldWarnings } from './unknown-names.ts';

/** Request sample: a body with every field, and a function that returns true if the reader accepts a body. */
interface Sample {
  readonly shape: Kind<unknown>;
  readonly body: JsonObject;
  readonly takes: (body: JsonObject) => boolean;
}

const isChecked = (read: (body: JsonObject) => Checked<unknown>) => (body: JsonObject) => read(body).ok;
const doesNotThrow = (read: (body: JsonObject) => unknown) => (body: JsonObject) => {
  try {
    read(body);
    return true;
  } catch {
    return false;
  }
};

const JOB = {
  entrypoint: 'e',
  metadata: { a: 'b' },
  runtime_env: {
    env_vars: { A: 'b' },
    working_dir: 'gcs://a.zip',
    py_modules: ['gcs://b.zip'],
    pip: { packages: ['a'], pip_check: true, pip_version: '==24', pip_install_options: ['-q'] },
  },
  entrypoint_label_selector: {},
  entrypoint_memory: 1e6,
  entrypoint_resources: { fast: 1 },
  entrypoint_num_cpus: 1,
  entrypoint_num_gpus: 0,
};
const FUNCTION = {
  name: '0@demo@hello',
  kind: 'agent',
  runtime: 'python3.11',
  cpu: 500,
  memory: 512,
  timeout: 9,
  handler: 'h',
  httpProfile: 'http',
  dependencies: 'auto',
  environment: { A: 'b' },
  description: 'd',
  storageType: 's3',
  codePath: '/c',
  s3CodePath: { bucketId: 'b', objectId: 'o', bucketUrl: 'u', token: 't', sha512: 'a'.repeat(128) },
  extendedHandler: { initializer: 'i', pre_stop: 'p' },
  extendedTimeout: { initializer: 3, pre_stop: 4 },
  sandboxType: 'docker',
  rootfs: {
    type: 'image',
    imageurl: 'i',
    user: 'u',
    ports: ['80'],
    path: '/p',
    readonly: true,
    mounts: [{ source: '/s', target: '/t', readonly: true }],
  },
  minInstance: 1,
  maxInstance: '7',
  concurrentNum: '5',
  customResources: { gpu: 1 },
  tags: { a: 'b' },
  layers: [1],
  device: { a: 1 },
  poolId: 'p',
  idleTime: 5,
  autoScaleConfig: { slaQuota: 600, scaleDownTime: 5, burstScaleNum: 6 },
  schedulePolicies: [{}],
  enableSessionCtx: true,
  enableAgentSession: true,
  isFuncPublic: true,
  expose: { port: 8000, access: 'public' },
  inputSchema: { type: 'object' },
  validateInput: true,
};
const POOL = {
  id: 'p',
  group: 'g',
  reuse: true,
  size: 1,
  max_size: 2,
  image: 'i',
  init_image: 'j',
  labels: { a: 'b' },
  environment: { A: 'b' },
  volumes: '[]',
  volume_mounts: '[]',
  resources: { requests: { cpu: '1m', memory: '1Mi' }, limits: { cpu: '2m', memory: '1Mi' } },
  affinities: '{}',
  node_selector: { a: 'b' },
  runtime_class_name: 'r',
  tolerations: '[]',
  horizontal_pod_autoscaler_spec: '',
  topology_spread_constraints: '[]',
  pod_pending_duration_threshold: 5,
  idle_recycle_time: { reserved: -1, scaled: 5 },
};

const SAMPLES: Readonly<Record<string, Sample>> = {
  'an agent': {
    shape: AGENT_CREATE,
    body: {
      namespace: 'n',
      name: 'a',
      runtime_spec: {
        runtime: 'python3.11',
        rootfs: { imageurl: 'img', user: 'u', ports: ['80', 'udp:53'] },
        sandbox_type: 'docker',
        codePath: '/c',
        handler: 'h.f',
        httpProfile: 'http',
        dependencies: 'auto',
        extendedHandler: { initializer: 'i', pre_stop: 'p', alarm: '', sleep: '' },
        cpu: 5,
        memory: 64,
      },
      urn: 'sn:x',
      template: 'base',
      image: '',
      env_vars: { A: '1' },
      replace: true,
      workspace: '/w',
      durable: false,
      restart_policy: { policy: 'always', max_restarts: 3, backoff_seconds: 0.5 },
      labels: { app: 'x' },
      ttl_seconds: 1.5,
      idle_seconds: 60,
      on_expiry: 'pause',
      mounts: [{ source: '/s', target: '/t', readonly: true }],
      expose: { port: 8000, access: 'link' },
    },
    takes: doesNotThrow(body => readAgentCreate(body, 't', { defaultSandboxType: 'process' })),
  },
  'a fork': {
    shape: AGENT_FORK,
    body: { name: 'a', namespace: 'n', count: 2, env_vars: { A: '1' }, ttl_seconds: 1.5, files_only: true },
    takes: doesNotThrow(readFork),
  },
  'an exec': {
    shape: EXEC,
    body: { command: ['a', 'b'], working_dir: '/w', env: { A: 'b' }, stdin: 'in', timeout: 3.5 },
    takes: doesNotThrow(readExec),
  },
  'a process': {
    shape: PROCESS,
    body: {
      command: ['a', 'b'],
      working_dir: '/w',
      env: { A: 'b' },
      user: 'root',
      tag: 't',
      stdin: true,
      tty: true,
      cols: 100,
      rows: 30,
      timeout: 3.5,
    },
    takes: doesNotThrow(readProcess),
  },
  'a signal': { shape: PROCESS_SIGNAL, body: { signal: 'SIGINT' }, takes: doesNotThrow(readProcessSignal) },
  'a job': {
    shape: JOB_SUBMIT,
    body: { ...JOB, submission_id: 's', job_id: 'j' },
    takes: doesNotThrow(body => readJobSubmission(body, '')),
  },
  'a schedule': {
    shape: JOB_SCHEDULE,
    body: { schedule_id: 'sid', cron: '0 0 * * *', timezone: 'UTC', overlap: 'skip', job: JOB },
    takes: doesNotThrow(readSchedule),
  },
  'a function': { shape: FUNCTION_REGISTER, body: FUNCTION, takes: isChecked(readRegister) },
  'an update of a function': {
    shape: FUNCTION_UPDATE,
    body: { revisionId: 'r', ...FUNCTION },
    takes: isChecked(readUpdate),
  },
  'a publish': {
    shape: PUBLISH,
    body: { revisionId: 'r', versionNumber: 'v1', versionDesc: 'd', kind: 'agent' },
    takes: isChecked(readPublish),
  },
  'a reservation': {
    shape: RESERVATION,
    body: {
      funcName: '0@demo@hello',
      version: 'latest',
      instanceLabel: 'l',
      instanceConfigInfos: [{ clusterId: 'c', minInstance: 1, maxInstance: '2' }],
    },
    takes: isChecked(body => readReservation(body, 'c')),
  },
  pools: {
    shape: POOLS_CREATE,
    body: { pools: [POOL] },
    takes: ({ pools }) =>
      Array.isArray(pools) && pools.length > 0 && pools.every(pool => isJsonObject(pool) && readPool(pool).ok),
  },
  'an update of a pool': {
    shape: POOL_UPDATE,
    body: { size: 1, max_size: 2, horizontal_pod_autoscaler_spec: '{"maxReplicas":3}' },
    takes: isChecked(readPoolUpdate),
  },
};

const VALUES: readonly unknown[] = [
  ...[null, true, '', 'x', '0', '12', '007', '-3', 'a\0b', '/abs', 'python3.11', 'docker', '500m', 'x'.repeat(70)],
  ...['x'.repeat(200), 'x'.repeat(1100), 'x'.repeat(5000), -1, 0, 1, 1.5, 101, 1e6 + 1, 2 ** 31, 1e15],
  ...[[], [5], ['a', 'a'], [null], ['70000'], {}, { a: 5 }, { a: 'b' }, { '1A': 'x' }, { ROOKERY_A: 'x' }],
  Array.from({ length: 101 }, (_, index) => String(index + 1)),
];

/**
 * Fields that the description allows more freely: a later rule refuses them, or `runtime_spec` overrides
 * `urn`.
 */
const LATER = new Set(['workspace', 'source', 'funcName', 'urn']);

type Path = readonly (string | number)[];

function pathsOf(value: unknown, at: Path = []): Path[] {
  const own = at.length === 0 ? [] : [at];
  if (typeof value !== 'object' || value === null) return own;
  const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(value);
  return [...own, ...keys.flatMap(key => pathsOf((value as Record<string, unknown>)[key], [...at, key]))];
}

/** Returns a copy with `value` at the path. Removes the field when `value` is undefined. */
function withValue(body: JsonObject, path: Path, value: unknown): JsonObject {
  const copy = structuredClone(body);
  const parent = path.slice(0, -1).reduce((object, key) => object[key] as never, copy as Record<string, unknown>);
  const last = path.at(-1) as string;
  if (value === undefined) delete parent[last];
  else parent[last] = value;
  return copy;
}

/** Returns a copy without fields that are null, because null counts as absent. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (!isJsonObject(value)) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== null);
  return Object.fromEntries(entries.map(([name, item]) => [name, withoutNulls(item)]));
}

describe.each(Object.entries(SAMPLES))('%s', (_name, { shape, body, takes }) => {
  const schema = shape.describe();

  test('a body with every field is accepted, matches its description, and has no unknown field', () => {
    expect(takes(body)).toBe(true);
    expect(Check(schema, body)).toBe(true);
    expect(unknownFieldWarnings(shape, body)).toEqual([]);
    expect(Object.keys((schema as { properties: object }).properties).sort()).toEqual(Object.keys(body).sort());
  });

  test('the description allows every body that the reader accepts', () => {
    const paths = pathsOf(body).filter(path => !LATER.has(String(path.at(-1))));
    const refused = paths.flatMap(path =>
      [undefined, ...VALUES]
        .map(value => withValue(body, path, value))
        .filter(changed => takes(changed) && !Check(schema, withoutNulls(changed)))
        .map(changed => `${path.join('.')}: ${JSON.stringify(changed).slice(0, 400)}`),
    );
    expect(refused).toEqual([]);
  });
});

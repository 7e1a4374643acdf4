import { describe, expect, test } from 'vitest';
import { AGENT_CREATE, readAgentCreate } from './agent.ts';
import { FUNCTION_REGISTER, FUNCTION_UPDATE } from './function.ts';
import { JOB_SUBMIT } from './job.ts';
import type { Kind } from './kind.ts';
import { POOLS_CREATE } from './pool.ts';
import { RESERVATION } from './reservation.ts';
import { PUBLISH } from './revision.ts';
import { nearest, unknownFieldWarnings } from './unknown-names.ts';

const AGENT = {
  namespace: 'default',
  name: 'a',
  runtime_spec: { runtime: 'python3.11', rootfs: { imageurl: 'host' } },
};

function ofAgent(body: object): readonly string[] {
  readAgentCreate(body as never, 't', { defaultSandboxType: 'process' });
  return unknownFieldWarnings(AGENT_CREATE, body);
}

const unknown = (path: string, meant?: string) =>
  `unknown field ${path} was ignored${meant === undefined ? '' : `; did you mean ${meant}?`}`;

const spec = (more: object) => ({ ...AGENT, runtime_spec: { ...AGENT.runtime_spec, ...more } });

describe('warnings about unknown fields of an agent', () => {
  test.each<[object, string]>([
    [{ ...AGENT, sandbox_type: 'docker' }, unknown('sandbox_type', 'runtime_spec.sandbox_type')],
    [{ ...AGENT, memory: 64 }, unknown('memory', 'runtime_spec.memory')],
    [{ ...AGENT, envVars: {} }, unknown('envVars', 'env_vars')],
    [{ ...AGENT, lables: {} }, unknown('lables', 'labels')],
    [{ ...AGENT, colour: 1 }, unknown('colour')],
    [spec({ memroy: 64 }), unknown('runtime_spec.memroy', 'runtime_spec.memory')],
    [spec({ initializer: 'h.init' }), unknown('runtime_spec.initializer', 'runtime_spec.extendedHandler.initializer')],
    [spec({ env_vars: {} }), unknown('runtime_spec.env_vars', 'env_vars')],
    [
      spec({ extendedHandler: { prestop: 'h.p' } }),
      unknown('runtime_spec.extendedHandler.prestop', 'runtime_spec.extendedHandler.pre_stop'),
    ],
    [spec({ rootfs: { imageurl: 'host', image: 'x' } }), unknown('runtime_spec.rootfs.image', 'image')],
    [
      { ...AGENT, mounts: [{ source: '/a', target: '/a', readOnly: true }] },
      unknown('mounts[0].readOnly', 'mounts[0].readonly'),
    ],
  ])('warnings about an agent name the unknown field and the likely one: %j', (body, warning) => {
    expect(ofAgent(body)).toEqual([warning]);
  });

  test('warnings about an agent are absent for names that callers choose, for null, and for an urn beside runtime_spec', () => {
    expect(ofAgent({ ...AGENT, urn: 'x', env_vars: { memroy: '1' }, whatever: null })).toEqual([]);
    expect(ofAgent(spec({ cpu: 1, memory: 16, handler: 'h', codePath: '/c' }))).toEqual([]);
  });

  test('warnings about an agent are limited to 21 entries when a body has thousands of unknown fields', () => {
    const many = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`zz${index}`.repeat(50), 1]));
    const warnings = ofAgent({ ...AGENT, ...many });
    expect(warnings).toHaveLength(21);
    expect(warnings.at(-1)).toBe('4980 more unknown fields were ignored');
    expect(warnings.join('').length).toBeLessThan(20_000);
  });
});

describe('warnings about unknown fields of meta_service requests', () => {
  const FUNCTION = { name: '0@a@b', runtime: 'go', cpu: 1000, memory: 128 };
  const POOL = { id: 'p', resources: { requests: { cpu: '1m', memory: '1Mi' }, limits: { cpu: '1m', memory: '1Mi' } } };
  const RESERVED = {
    funcName: '0@a@b',
    version: 'v1',
    instanceLabel: 'l',
    instanceConfigInfos: [{ minInstance: 1 }],
  };

  test.each<[string, Kind<unknown>, object, readonly string[]]>([
    ['register', FUNCTION_REGISTER, { ...FUNCTION, memroy: 1 }, [unknown('memroy', 'memory')]],
    ['register', FUNCTION_REGISTER, { ...FUNCTION, sandbox_type: '' }, [unknown('sandbox_type', 'sandboxType')]],
    [
      'register',
      FUNCTION_REGISTER,
      { ...FUNCTION, pre_stop: 'h.p' },
      [unknown('pre_stop', 'extendedHandler.pre_stop')],
    ],
    [
      'register',
      FUNCTION_REGISTER,
      { ...FUNCTION, rootfs: { imageUrl: 'x' } },
      [unknown('rootfs.imageUrl', 'rootfs.imageurl')],
    ],
    [
      'register',
      FUNCTION_REGISTER,
      { ...FUNCTION, rootfs: { mounts: [{ target: '/a', source: '/a', read_only: true }] } },
      [unknown('rootfs.mounts[0].read_only', 'rootfs.mounts[0].readonly')],
    ],
    [
      'register',
      FUNCTION_REGISTER,
      { ...FUNCTION, tags: { x: 'y' }, device: { a: 1 }, environment: { A: 'b' }, layers: [{ a: 1 }] },
      [],
    ],
    ['register with a field missing', FUNCTION_REGISTER, { name: '0@a@b', memroy: 1 }, [unknown('memroy', 'memory')]],
    ['update', FUNCTION_UPDATE, { revisionId: '1', kind: '', timout: 3 }, [unknown('timout', 'timeout')]],
    ['publish', PUBLISH, { revisionId: '1', versionNumbr: 'v' }, [unknown('versionNumbr', 'versionNumber')]],
    ['reservation', RESERVATION, { ...RESERVED, label: 'x' }, [unknown('label')]],
    [
      'reservation',
      RESERVATION,
      { ...RESERVED, instanceConfigInfos: [{ min_instance: 1 }] },
      [unknown('instanceConfigInfos[0].min_instance', 'instanceConfigInfos[0].minInstance')],
    ],
    [
      'pool',
      POOLS_CREATE,
      { pools: [{ ...POOL, maxSize: 2, labels: { a: 'b' } }] },
      [unknown('pools[0].maxSize', 'pools[0].max_size')],
    ],
    [
      'pool',
      POOLS_CREATE,
      { pools: [{ ...POOL, idle_recycle_time: { scale: 1 } }] },
      [unknown('pools[0].idle_recycle_time.scale', 'pools[0].idle_recycle_time.scaled')],
    ],
    [
      'pool',
      POOLS_CREATE,
      { pools: [{ ...POOL, resources: { ...POOL.resources, limit: {} } }] },
      [unknown('pools[0].resources.limit', 'pools[0].resources.limits')],
    ],
  ])('warnings about a meta_service request name its unknown fields: %s %#', (_what, shape, body, warnings) => {
    expect(unknownFieldWarnings(shape, body)).toEqual(warnings);
  });
});

describe('warnings about unknown fields of a job', () => {
  const read = (body: object) => unknownFieldWarnings(JOB_SUBMIT, body);

  test('warnings about a job name the unknown field and the likely one', () => {
    expect(read({ entrypoint: 'x', entrypoint_cpus: 1 })).toEqual([unknown('entrypoint_cpus', 'entrypoint_num_cpus')]);
  });

  test("warnings about a job are absent for everything that Ray's client sends, and inside of free-form fields", () => {
    const body = {
      entrypoint: 'x',
      submission_id: 'a',
      job_id: 'a',
      runtime_env: { _ray_commit: 'x', config: {}, excludes: [], anything: { a: 1 }, pip: { packages: [], other: 1 } },
      metadata: { a: 'b' },
      entrypoint_num_cpus: 1,
      entrypoint_num_gpus: 0,
      entrypoint_memory: 1,
      entrypoint_resources: { fast: 1 },
      entrypoint_label_selector: {},
    };
    expect(read(body)).toEqual([]);
    // A name inside entrypoint_resources is the caller's own, so it is not suggested for an unknown field.
    expect(read({ ...body, fast: 1 })).toEqual([unknown('fast')]);
  });
});

const NAMES = ['port', 'metaPort', 'jwt.secretFile', 'enable_func_token_auth'];

test.each([
  ['prot', 'port'],
  ['PORT', 'port'],
  ['meta_port', 'metaPort'],
  ['jwt.secretfile', 'jwt.secretFile'],
  ['enableFuncTokenAuth', 'enable_func_token_auth'],
  ['colour', null],
  ['', null],
])('the unknown name %s has the nearest name %s', (given, expected) => {
  expect(nearest(given, NAMES)).toBe(expected);
});

test('nearest returns null when the text has a million characters', () => {
  expect(nearest('x'.repeat(1_000_000), NAMES)).toBeNull();
});

import { describe, expect, test } from 'vitest';
import { readAgentCreate } from './agent.ts';
import { readRegister, readUpdate } from './function-fields.ts';
import { readJobSubmission } from './job.ts';
import { readBody } from './json.ts';
import { readPool } from './pool-fields.ts';
import { readPublish } from './publish.ts';
import { readReservation } from './reservation.ts';
import { unknownFieldWarnings } from './unknown-fields.ts';

const AGENT = {
  namespace: 'default',
  name: 'a',
  runtime_spec: { runtime: 'python3.11', rootfs: { imageurl: 'host' } },
};

function ofAgent(body: object): readonly string[] {
  const fields = readBody(Buffer.from(JSON.stringify(body)));
  readAgentCreate(fields, 't', { defaultSandboxType: 'process' } as never);
  return fields.warnings();
}

function ofMeta(read: (body: never) => unknown, body: object): readonly string[] {
  read(body as never);
  return unknownFieldWarnings(body);
}

const unknown = (path: string, meant?: string) =>
  `unknown field ${path} was ignored${meant === undefined ? '' : `; did you mean ${meant}?`}`;

const spec = (more: object) => ({ ...AGENT, runtime_spec: { ...AGENT.runtime_spec, ...more } });

describe('a create of an agent tells each field that it does not know', () => {
  test.each<[object, string]>([
    [{ ...AGENT, sandbox_type: 'docker' }, unknown('sandbox_type', 'runtime_spec.sandbox_type')],
    [{ ...AGENT, memory: 64 }, unknown('memory', 'runtime_spec.memory')],
    [{ ...AGENT, envVars: {} }, unknown('envVars', 'env_vars')],
    [{ ...AGENT, lables: 1 }, unknown('lables')],
    [spec({ memroy: 64 }), unknown('runtime_spec.memroy', 'runtime_spec.memory')],
    [spec({ initializer: 'h.init' }), unknown('runtime_spec.initializer', 'runtime_spec.extendedHandler.initializer')],
    [spec({ env_vars: {} }), unknown('runtime_spec.env_vars', 'env_vars')],
    [
      spec({ extendedHandler: { prestop: 'h.p' } }),
      unknown('runtime_spec.extendedHandler.prestop', 'runtime_spec.extendedHandler.pre_stop'),
    ],
    [spec({ rootfs: { imageurl: 'host', image: 'x' } }), unknown('runtime_spec.rootfs.image')],
    [
      { ...AGENT, mounts: [{ source: '/a', target: '/a', readOnly: true }] },
      unknown('mounts[0].readOnly', 'mounts[0].readonly'),
    ],
  ])('%j', (body, warning) => {
    expect(ofAgent(body)).toEqual([warning]);
  });

  test('maps of names that callers choose, null, and an urn beside runtime_spec are none', () => {
    expect(ofAgent({ ...AGENT, urn: 'x', env_vars: { memroy: '1' }, whatever: null })).toEqual([]);
    expect(ofAgent(spec({ cpu: 1, memory: 16, handler: 'h', codePath: '/c' }))).toEqual([]);
  });

  test('thousands of them are told in an answer of readable size', () => {
    const many = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`zz${index}`.repeat(50), 1]));
    const warnings = ofAgent({ ...AGENT, ...many });
    expect(warnings).toHaveLength(21);
    expect(warnings.at(-1)).toBe('4980 more unknown fields were ignored');
    expect(warnings.join('').length).toBeLessThan(20_000);
  });
});

describe('so do requests of the meta_service', () => {
  const FUNCTION = { name: '0@a@b', runtime: 'go', cpu: 1000, memory: 128 };
  const POOL = { id: 'p', resources: { requests: { cpu: '1m', memory: '1Mi' }, limits: { cpu: '1m', memory: '1Mi' } } };
  const RESERVATION = {
    funcName: '0@a@b',
    version: 'v1',
    instanceLabel: 'l',
    instanceConfigInfos: [{ minInstance: 1 }],
  };

  test.each<[string, (body: never) => unknown, object, readonly string[]]>([
    ['register', readRegister, { ...FUNCTION, memroy: 1 }, [unknown('memroy', 'memory')]],
    ['register', readRegister, { ...FUNCTION, sandbox_type: '' }, [unknown('sandbox_type', 'sandboxType')]],
    ['register', readRegister, { ...FUNCTION, pre_stop: 'h.p' }, [unknown('pre_stop', 'extendedHandler.pre_stop')]],
    [
      'register',
      readRegister,
      { ...FUNCTION, rootfs: { imageUrl: 'x' } },
      [unknown('rootfs.imageUrl', 'rootfs.imageurl')],
    ],
    [
      'register',
      readRegister,
      { ...FUNCTION, rootfs: { mounts: [{ target: '/a', source: '/a', read_only: true }] } },
      [unknown('rootfs.mounts[0].read_only', 'rootfs.mounts[0].readonly')],
    ],
    [
      'register',
      readRegister,
      { ...FUNCTION, tags: { x: 'y' }, device: { a: 1 }, environment: { A: 'b' }, layers: [{ a: 1 }] },
      [],
    ],
    ['register with a field missing', readRegister, { name: '0@a@b', memroy: 1 }, [unknown('memroy', 'memory')]],
    ['update', readUpdate, { revisionId: '1', kind: '', timout: 3 }, [unknown('timout', 'timeout')]],
    ['publish', readPublish, { revisionId: '1', versionNumbr: 'v' }, [unknown('versionNumbr', 'versionNumber')]],
    ['reservation', (body: never) => readReservation(body, 'c'), { ...RESERVATION, label: 'x' }, [unknown('label')]],
    [
      'reservation',
      (body: never) => readReservation(body, 'c'),
      { ...RESERVATION, instanceConfigInfos: [{ min_instance: 1 }] },
      [unknown('instanceConfigInfos[0].min_instance', 'instanceConfigInfos[0].minInstance')],
    ],
    ['pool', readPool, { ...POOL, maxSize: 2, labels: { a: 'b' } }, [unknown('maxSize', 'max_size')]],
    [
      'pool',
      readPool,
      { ...POOL, idle_recycle_time: { scale: 1 } },
      [unknown('idle_recycle_time.scale', 'idle_recycle_time.scaled')],
    ],
    [
      'pool',
      readPool,
      { ...POOL, resources: { ...POOL.resources, limit: {} } },
      [unknown('resources.limit', 'resources.limits')],
    ],
  ])('%s %#', (_what, read, body, warnings) => {
    expect(ofMeta(read, body)).toEqual(warnings);
  });
});

describe('and a job', () => {
  const read = (body: object) => readJobSubmission(Buffer.from(JSON.stringify(body))).warnings;

  test('what is no field of a submission', () => {
    expect(read({ entrypoint: 'x', entrypoint_cpus: 1 })).toEqual([unknown('entrypoint_cpus', 'entrypoint_num_cpus')]);
  });

  test('everything that the client of Ray sends is known; runtime_env, metadata and resources are free', () => {
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
  });
});

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createBody, runtimeSpec, SPEC } from '../../test/http/frontend.ts';
import { type AgentCreateRequest, type AgentFunction, readAgentCreate, resolveRegistered } from './agent.ts';
import type { SandboxType } from './instance.ts';
import { readBody } from './json.ts';
import { SANDBOX_TYPES } from './sandbox-types.ts';

const DEFAULTS = { defaultSandboxType: 'process' } as const;
const read = (body: unknown): AgentCreateRequest =>
  readAgentCreate(readBody(Buffer.from(JSON.stringify(body))), 'default', DEFAULTS);
const spec = (changes: Record<string, unknown>) => createBody({ runtime_spec: runtimeSpec(changes) });
const rootfs = (changes: Record<string, unknown>) => spec({ rootfs: { imageurl: 'i', ...changes } });
const readSpec = (body: unknown) => {
  const request = read(body);
  if (request.mode !== 'inline') throw new Error('expected inline mode');
  return request.spec;
};

test('the smallest inline request has the defaults of the specification', () => {
  expect(read(createBody())).toEqual({
    mode: 'inline',
    tenant: 'default',
    namespace: 'default',
    name: 'hello',
    workspace: '',
    envVars: {},
    mounts: [],
    spec: SPEC,
  });
});

test('every field of an inline request arrives in the spec', () => {
  const request = createBody({
    workspace: '/home/ann/work',
    env_vars: { A: '1', __proto__x: '2' },
    mounts: [
      { source: '/code', target: '/opt/code', readonly: true },
      { source: '/data', target: '/data' },
    ],
    runtime_spec: {
      runtime: 'python3.9',
      sandbox_type: 'docker',
      codePath: '/opt/code',
      handler: 'main.handle',
      extendedHandler: { initializer: 'main.init', pre_stop: 'main.stop' },
      rootfs: { imageurl: 'py:3.9', user: 'ann', ports: ['8080', 'udp:53'] },
      cpu: 500,
      memory: 256,
    },
  });
  expect(readSpec(request)).toEqual({
    ...SPEC,
    sandboxType: 'docker',
    runtime: 'python3.9',
    codePath: '/opt/code',
    handler: 'main.handle',
    initializer: 'main.init',
    preStop: 'main.stop',
    rootfs: { type: 'image', imageUrl: 'py:3.9', user: 'ann' },
    ports: [
      { protocol: 'tcp', port: 8080 },
      { protocol: 'udp', port: 53 },
    ],
    cpuMillis: 500,
    memoryMb: 256,
    env: { A: '1', __proto__x: '2' },
    workspace: '/home/ann/work',
    mounts: [
      { source: '/code', target: '/opt/code', readonly: true },
      { source: '/data', target: '/data', readonly: false },
    ],
  });
});

test('unknown fields are ignored and null is absent', () => {
  const body = createBody({ urn: null, workspace: null, env_vars: null, mounts: null, extra: { a: 1 } });
  body.runtime_spec = runtimeSpec({
    sandbox_type: null,
    codePath: null,
    handler: null,
    extendedHandler: null,
    cpu: null,
    memory: null,
    rootfs: { imageurl: 'python:3.11', user: null, ports: null, other: 1 },
  });
  expect(readSpec(body)).toEqual(SPEC);
});

test('a variable named __proto__ is an ordinary variable', () => {
  const body = JSON.stringify(createBody()).replace('{', '{"env_vars":{"__proto__":"x"},');
  const request = readAgentCreate(readBody(Buffer.from(body)), 'default', DEFAULTS);
  expect(Object.entries(request.envVars)).toEqual([['__proto__', 'x']]);
});

test('runtime_spec wins over urn, and the urn is used without runtime_spec', () => {
  expect(read(createBody({ urn: 'sn:cn:yrk:default:function:0@a@b:1' })).mode).toBe('inline');
  expect(read({ namespace: 'n', name: 'a', urn: 'u', runtime_spec: null })).toMatchObject({
    mode: 'registered',
    urn: 'u',
  });
});

test.each(['docker', 'kubernetes'])('sandbox_type %s runs an image', type => {
  expect(readSpec(spec({ sandbox_type: type }))).toMatchObject({ sandboxType: type, rootfs: { type: 'image' } });
});

test.each(['', 'supervisor'])('sandbox_type "%s" runs on the files of the host', type => {
  expect(readSpec(spec({ sandbox_type: type })).rootfs.type).toBe('host');
});

describe('missing fields', () => {
  test.each([
    ['namespace', createBody({ namespace: undefined })],
    ['namespace', createBody({ namespace: null })],
    ['namespace', createBody({ namespace: '' })],
    ['name', createBody({ name: undefined })],
    ['name', createBody({ name: '' })],
    ['runtime_spec.runtime', createBody({ runtime_spec: {} })],
    ['runtime_spec.runtime', spec({ runtime: '' })],
    ['runtime_spec.rootfs.imageurl', spec({ rootfs: undefined })],
    ['runtime_spec.rootfs.imageurl', spec({ rootfs: {} })],
    ['runtime_spec.rootfs.imageurl', spec({ rootfs: { imageurl: '' } })],
    ['mounts[0].source', createBody({ mounts: [{ target: '/x' }] })],
    ['mounts[1].target', createBody({ mounts: [{ source: '/a', target: '/x' }, { source: '/b' }] })],
  ])('a create without %s is refused with the whole path of the field', (field, body) => {
    expect(() => read(body)).toThrow(`invalid request body: ${field} is required`);
  });
});

describe('wrong types', () => {
  test.each([
    ['namespace', 'a string', createBody({ namespace: 5 })],
    ['name', 'a string', createBody({ name: ['a'] })],
    ['runtime_spec', 'an object', createBody({ runtime_spec: 'x' })],
    ['runtime_spec', 'an object', createBody({ runtime_spec: [] })],
    ['runtime_spec.runtime', 'a string', spec({ runtime: 3.11 })],
    ['runtime_spec.rootfs', 'an object', spec({ rootfs: 'image' })],
    ['runtime_spec.rootfs.imageurl', 'a string', spec({ rootfs: { imageurl: true } })],
    ['runtime_spec.rootfs.user', 'a string', rootfs({ user: 1000 })],
    ['runtime_spec.rootfs.ports', 'an array', rootfs({ ports: '8080' })],
    ['runtime_spec.rootfs.ports[0]', 'a string', rootfs({ ports: [8080] })],
    ['runtime_spec.sandbox_type', 'a string', spec({ sandbox_type: 1 })],
    ['runtime_spec.codePath', 'a string', spec({ codePath: {} })],
    ['runtime_spec.handler', 'a string', spec({ handler: 1 })],
    ['runtime_spec.extendedHandler', 'an object', spec({ extendedHandler: 'x' })],
    ['runtime_spec.extendedHandler.initializer', 'a string', spec({ extendedHandler: { initializer: 1 } })],
    ['runtime_spec.extendedHandler.pre_stop', 'a string', spec({ extendedHandler: { pre_stop: 1 } })],
    ['runtime_spec.cpu', 'an integer', spec({ cpu: '1000' })],
    ['runtime_spec.cpu', 'an integer', spec({ cpu: 1.5 })],
    ['runtime_spec.memory', 'an integer', spec({ memory: true })],
    ['env_vars', 'an object', createBody({ env_vars: ['A=1'] })],
    ['env_vars.A', 'a string', createBody({ env_vars: { A: 1 } })],
    ['env_vars.A', 'a string', createBody({ env_vars: { A: null } })],
    ['workspace', 'a string', createBody({ workspace: 1 })],
    ['mounts', 'an array', createBody({ mounts: {} })],
    ['mounts[0]', 'an object', createBody({ mounts: ['/a:/b'] })],
    ['mounts[0].source', 'a string', createBody({ mounts: [{ source: 1, target: '/x' }] })],
    ['mounts[0].readonly', 'a boolean', createBody({ mounts: [{ source: '/a', target: '/x', readonly: 'true' }] })],
    ['urn', 'a string', { namespace: 'n', name: 'a', urn: 5 }],
  ])('a create is refused with "%s must be %s" instead of a conversion', (field, type, body) => {
    expect(() => read(body)).toThrow(`invalid request body: ${field} must be ${type}`);
  });
});

test.each([null, 'text', 5, [1]])('a body %j that is not an object is refused', body => {
  expect(() => read(body)).toThrow('invalid request body: the body must be an object');
});

test('a body that is not JSON is refused with the message of the parser', () => {
  expect(() => readBody(Buffer.from('{"a":'))).toThrow(/^invalid request body: .*JSON/);
  expect(() => readBody(undefined)).toThrow(/^invalid request body: .*JSON/);
});

test('bytes that are not UTF-8 are not JSON', () => {
  expect(() => readBody(Buffer.from([0x22, 0xff, 0x22]))).toThrow('invalid request body: the body is not UTF-8');
});

test.each([{}, { urn: null }, { urn: '' }, { runtime_spec: null }])(
  'a create with neither runtime_spec nor urn is refused: %j',
  fields => {
    expect(() => read({ namespace: 'n', name: 'a', ...fields })).toThrow(
      'one of runtime_spec (inline) or urn (registered) is required',
    );
  },
);

describe('a create with a template', () => {
  test('a template needs no runtime_spec', () => {
    expect(readSpec({ namespace: 'n', name: 'a', template: 'base', runtime_spec: null })).toMatchObject({
      template: 'base',
      codePath: '',
      handler: '',
      cpuMillis: 1000,
      memoryMb: 2048,
    });
  });

  test('a template takes resources of the runtime_spec, and no code', () => {
    const sent = runtimeSpec({ cpu: 500, codePath: '/c', handler: 'h.f' });
    expect(readSpec(createBody({ template: 'base', runtime_spec: sent }))).toMatchObject({
      template: 'base',
      cpuMillis: 500,
      codePath: '',
      handler: '',
    });
  });

  const withExecutor = (defaultSandboxType: 'kubernetes' | 'docker', more: object = {}) =>
    readAgentCreate({ namespace: 'n', name: 'a', template: 'base', ...more }, 'default', { defaultSandboxType });

  test('a template in a cluster has the image of Rookery, unless another one is named', () => {
    expect(withExecutor('kubernetes')).toMatchObject({ spec: { template: 'base', rootfs: { imageUrl: '' } } });
    const named = { runtime_spec: { runtime: 'python3', rootfs: { imageurl: 'mine' } } };
    expect(withExecutor('kubernetes', named)).toMatchObject({ spec: { rootfs: { imageUrl: 'mine' } } });
  });

  test('a template is refused for a container without an image', () => {
    expect(() => withExecutor('docker')).toThrow(
      'template: a docker sandbox has the files of an image, and base is none: name an image instead',
    );
  });

  test('an empty template makes an agent with code', () => {
    expect(readSpec(createBody({ template: '' }))).toEqual(SPEC);
  });
});

describe('names of agents', () => {
  test.each(['namespace', 'name'])('the field %s may have 128 characters of any script', field => {
    expect(read(createBody({ [field]: '\u{1f600}'.repeat(128) }))).toMatchObject({ [field]: '\u{1f600}'.repeat(128) });
  });
  test.each(['x'.repeat(129), 'a\nb', 'a\u007f', 'a\u0085b'])('a create with the name %j is refused', name => {
    expect(() => read(createBody({ name }))).toThrow(
      'invalid request body: name must have 1 to 128 characters and no control characters',
    );
  });
});

describe('ranges of numbers', () => {
  test.each([
    ['cpu', 0, '1 and 1000000'],
    ['cpu', 1_000_001, '1 and 1000000'],
    ['memory', 15, '16 and 1073741824'],
    ['memory', 1_073_741_825, '16 and 1073741824'],
  ])('a create with %s of %d is refused', (field, value, range) => {
    expect(() => read(spec({ [field]: value }))).toThrow(
      `invalid request body: runtime_spec.${field} must be between ${range}, got ${value}`,
    );
  });
  test.each([
    ['cpu', 'cpuMillis', 1],
    ['cpu', 'cpuMillis', 1_000_000],
    ['memory', 'memoryMb', 16],
    ['memory', 'memoryMb', 1_073_741_824],
  ] as const)('a create with %s (%s) of %d is accepted', (field, ours, value) => {
    expect(readSpec(spec({ [field]: value }))[ours]).toBe(value);
  });
});

test.each(['process', 'Docker', 'podman'])('sandbox_type "%s" is refused', type => {
  expect(() => read(spec({ sandbox_type: type }))).toThrow(
    `invalid request body: runtime_spec.sandbox_type must be one of ${SANDBOX_TYPES.join(', ')} or empty, got "${type}"`,
  );
});

test.each(['1A', 'A-B', '', 'A B', 'ä'])('an environment variable cannot be named "%s"', name => {
  expect(() => read(createBody({ env_vars: { [name]: 'x' } }))).toThrow(`invalid request body: env_vars.${name} must`);
});

test.each(['ROOKERY_INSTANCE_ID', 'ROOKERY_X'])(
  'a create cannot set the variable %s, which belongs to the platform',
  name => {
    expect(() => read(createBody({ env_vars: { [name]: 'x' } }))).toThrow(
      `invalid request body: env_vars.${name} cannot be set`,
    );
  },
);

test('a text with a NUL character is refused', () => {
  expect(() => read(createBody({ env_vars: { A: 'a\0b' } }))).toThrow('env_vars.A must not contain a NUL character');
  expect(() => read(spec({ handler: 'a\0b' }))).toThrow('runtime_spec.handler must not contain a NUL character');
});

test('an agent in a cluster may omit the image, which the pod then decides', () => {
  const body = (more: object) => spec({ rootfs: { imageurl: '' }, ...more });
  const read = (more: object, defaultSandboxType: SandboxType) =>
    readAgentCreate(body(more), 'default', { defaultSandboxType });
  expect(read({ sandbox_type: 'kubernetes' }, 'process')).toMatchObject({ spec: { rootfs: { imageUrl: '' } } });
  expect(read({}, 'kubernetes')).toMatchObject({ spec: { rootfs: { imageUrl: '' } } });
  for (const [more, byDefault] of [
    [{}, 'process'],
    [{ sandbox_type: 'docker' }, 'kubernetes'],
  ] as const) {
    expect(() => read(more, byDefault)).toThrow('runtime_spec.rootfs.imageurl is required');
  }
});

test('the first failure is reported in the order namespace, name, mode, runtime, imageurl, mounts', () => {
  const messages: string[] = [];
  const body: Record<string, unknown> = { mounts: 5 };
  const fixes: [string, unknown][] = [
    ['namespace', 'n'],
    ['name', 'a'],
    ['runtime_spec', {}],
    ['runtime_spec', { runtime: 'go' }],
    ['runtime_spec', runtimeSpec()],
    ['mounts', []],
  ];
  for (const [field, value] of fixes) {
    try {
      read(body);
    } catch (error) {
      messages.push((error as Error).message.replace('invalid request body: ', ''));
    }
    body[field] = value;
  }
  read(body);
  expect(messages).toEqual([
    'namespace is required',
    'name is required',
    'one of runtime_spec (inline) or urn (registered) is required',
    'runtime_spec.runtime is required',
    'runtime_spec.rootfs.imageurl is required',
    'mounts must be an array',
  ]);
});

test('mounts are checked before the urn', () => {
  expect(() => read({ namespace: 'n', name: 'a', urn: 5, mounts: 5 })).toThrow('mounts must be an array');
});

test('the reader of a create accepts any JSON or fails with invalid_request', () => {
  fc.assert(
    fc.property(fc.json(), text => {
      try {
        readAgentCreate(readBody(Buffer.from(text)), 'default', DEFAULTS);
      } catch (error) {
        expect(error).toMatchObject({ name: 'ServiceError', code: 'invalid_request' });
      }
    }),
  );
});

describe('registered mode', () => {
  const FUNCTION: AgentFunction = {
    functionName: '0@team@greeter',
    functionVersion: 'v1',
    functionUrn: 'sn:cn:yrk:default:function:0@team@greeter:v1',
    sandboxType: '',
    runtime: 'python3.11',
    codePath: '/opt/code',
    handler: 'main.handle',
    initializer: 'main.init',
    preStop: 'main.stop',
    imageUrl: 'py',
    user: 'ann',
    ports: [{ protocol: 'tcp', port: 80 }],
    mounts: [{ source: '/lib1', target: '/lib1', readonly: true }],
    cpuMillis: 300,
    memoryMb: 128,
    environment: { A: 'static', B: 'static' },
    callTimeoutMs: 5_000,
    initTimeoutMs: 7_000,
    preStopTimeoutMs: 9_000,
  };
  const request = {
    tenant: 'default',
    namespace: 'n',
    name: 'a',
    workspace: '/w',
    envVars: { B: 'dynamic', C: 'dynamic' },
    mounts: [{ source: '/code', target: '/opt/code', readonly: false }],
  };

  test('resolveRegistered takes all settings of the function, prefers env_vars of the request and adds its mounts', () => {
    expect(resolveRegistered(request, FUNCTION, DEFAULTS)).toEqual({
      tenant: 'default',
      namespace: 'n',
      name: 'a',
      sandboxType: 'process',
      runtime: 'python3.11',
      codePath: '/opt/code',
      handler: 'main.handle',
      initializer: 'main.init',
      preStop: 'main.stop',
      rootfs: { type: 'host', imageUrl: 'py', user: 'ann' },
      ports: [{ protocol: 'tcp', port: 80 }],
      cpuMillis: 300,
      memoryMb: 128,
      env: { A: 'static', B: 'dynamic', C: 'dynamic' },
      workspace: '/w',
      mounts: [
        { source: '/lib1', target: '/lib1', readonly: true },
        { source: '/code', target: '/opt/code', readonly: false },
      ],
      callTimeoutMs: 5_000,
      initTimeoutMs: 7_000,
      preStopTimeoutMs: 9_000,
      concurrency: 1,
      functionName: '0@team@greeter',
      functionVersion: 'v1',
      functionUrn: 'sn:cn:yrk:default:function:0@team@greeter:v1',
    });
  });

  test('the sandbox type of the function wins over the default executor', () => {
    expect(resolveRegistered(request, { ...FUNCTION, sandboxType: 'docker' }, DEFAULTS)).toMatchObject({
      sandboxType: 'docker',
      rootfs: { type: 'image' },
    });
  });
});

describe('a create with an image', () => {
  const NAMED = { namespace: 'n', name: 'a', image: 'python:3.12' };

  test('the image is its template and its files, in a container', () => {
    expect(readSpec({ ...NAMED, runtime_spec: { memory: 512 } })).toMatchObject({
      ...{ template: 'python:3.12', sandboxType: 'docker', memoryMb: 512, codePath: '', handler: '' },
      rootfs: { type: 'image', imageUrl: 'python:3.12', user: '' },
    });
  });

  test.each([
    [{ template: 'base' }, 'invalid request body: image: leave out template'],
    [
      { workspace: '/srv' },
      'invalid request body: image: root of such a sandbox could write to mounts; leave them out',
    ],
  ])('%j with an image is refused', (more, message) => {
    expect(() => readSpec({ ...NAMED, ...more })).toThrow(message);
  });
});

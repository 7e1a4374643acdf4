import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FUNCTION_FIELDS, type FunctionSpec, mergeUpdate, readRegister, readUpdate } from './function.ts';
import { SANDBOX_TYPES } from './sandbox-types.ts';

const SMALLEST = { name: '0@demo@hello', runtime: 'python3.11', cpu: 500, memory: 512 };
const FAAS = { ...SMALLEST, kind: 'faas', handler: 'a.b', storageType: 'local', codePath: '/srv/code' };

const problemsOf = (body: Record<string, unknown>) => {
  const read = readRegister(body);
  return read.ok ? [] : read.problems;
};
const specOf = (body: Record<string, unknown>): FunctionSpec => {
  const read = readRegister(body);
  if (!read.ok) throw new Error(read.problems.join('; '));
  return read.value;
};

test('a function needs only name, runtime, cpu and memory, and every other field has its default', () => {
  expect(specOf(SMALLEST)).toEqual({
    ...SMALLEST,
    kind: 'yrlib',
    timeout: 900,
    handler: '',
    environment: {},
    description: '',
    storageType: '',
    codePath: '',
    s3CodePath: null,
    extendedHandler: { initializer: '', pre_stop: '' },
    extendedTimeout: { initializer: 30, pre_stop: 0 },
    sandboxType: '',
    rootfs: null,
    minInstance: 0,
    maxInstance: 100,
    concurrentNum: 100,
    customResources: null,
    tags: null,
    layers: null,
    device: {},
    poolId: '',
    idleTime: 0,
    autoScaleConfig: null,
    schedulePolicies: null,
    enableSessionCtx: false,
    enableAgentSession: false,
    isFuncPublic: false,
    httpProfile: '',
    inputSchema: null,
    validateInput: false,
    expose: null,
    dependencies: '',
  });
});

test('null counts as absent, and unknown fields are ignored', () => {
  const nulls = Object.fromEntries(Object.keys(FUNCTION_FIELDS).map(field => [field, null]));
  expect(specOf({ ...nulls, ...SMALLEST, unknown: 1 })).toEqual(specOf(SMALLEST));
});

test('nested values have at most 100 levels, and a deeper value of a wrong type is reported too', () => {
  const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));
  const problemOf = (changes: Record<string, unknown>) => problemsOf({ ...SMALLEST, ...changes }).join('; ');
  const tooDeep = 'must have at most 100 levels of arrays and objects';
  for (const field of ['layers', 'schedulePolicies']) {
    expect(problemOf({ [field]: [nested(100)] })).toBe('');
    expect(problemOf({ [field]: [nested(101)] })).toBe(`${field}[0] ${tooDeep}`);
    expect(problemOf({ [field]: [nested(200_000)] })).toBe(`${field}[0] ${tooDeep}`);
  }
  expect(problemOf({ device: { a: nested(200_000) } })).toBe(`device ${tooDeep}`);
  expect(problemOf({ minInstance: nested(200_000) })).toContain('minInstance must be an integer');
});

test('all problems of a function are reported together', () => {
  expect(
    problemsOf({ name: 'hello', kind: 'faas', cpu: '500', memory: 15, timeout: 0, rootfs: { ports: ['x'] } }),
  ).toEqual([
    'runtime is required',
    expect.stringMatching(/^name must have the format 0@\{service\}@\{funcName\}/),
    'cpu must be an integer',
    'memory must be between 16 and 1073741824, got 15',
    'timeout must be between 1 and 8640000, got 0',
    expect.stringContaining('rootfs.ports[0] must be [tcp:|udp:]<port>'),
    'handler is required for kind faas',
    expect.stringContaining('storageType is required for kind faas'),
  ]);
});

describe('refusals', () => {
  test.each<[string, Record<string, unknown>, string]>([
    ['no name', { name: undefined }, 'name is required, in the format 0@{service}@{funcName}'],
    ['an empty name', { name: '' }, 'name is required, in the format'],
    ['no runtime', { runtime: undefined }, 'runtime is required'],
    ['an empty runtime', { runtime: '' }, 'runtime is required'],
    ['a runtime of 65 characters', { runtime: 'x'.repeat(65) }, 'runtime must have at most 64 characters'],
    ['no cpu', { cpu: null }, 'cpu is required'],
    ['cpu 0', { cpu: 0 }, 'cpu must be between 1 and 1000000'],
    ['cpu 1000001', { cpu: 1_000_001 }, 'cpu must be between 1 and 1000000'],
    ['a fraction of cpu', { cpu: 0.5 }, 'cpu must be an integer'],
    ['no memory', { memory: undefined }, 'memory is required'],
    ['an unknown kind', { kind: 'lambda' }, 'kind must be one of "agent", "faas", "yrlib", "custom", got "lambda"'],
    ['a timeout of 0', { timeout: 0 }, 'timeout must be between 1 and 8640000'],
    ['a timeout of 8640001', { timeout: 8_640_001 }, 'timeout must be between 1 and 8640000'],
    ['a description of 1025 characters', { description: 'x'.repeat(1025) }, 'description must have at most 1024'],
    [
      'a description of 1025 characters of two code units',
      { description: '🐦'.repeat(1025) },
      'description must have at most 1024 characters, got 1025',
    ],
    ['an unknown storageType', { storageType: 'ftp' }, 'storageType must be one of "local", "s3", "copy"'],
    [
      'an unknown sandboxType',
      { sandboxType: 'vm' },
      `sandboxType must be one of ${SANDBOX_TYPES.map(type => `"${type}"`).join(', ')}`,
    ],
    ['a name in environment with "-"', { environment: { 'A-B': '1' } }, 'environment.A-B must have a name like'],
    ['a name of the platform in environment', { environment: { ROOKERY_X: '' } }, 'belong to the platform'],
    ['a number in environment', { environment: { A: 1 } }, 'environment.A must be a string'],
    ['null in environment', { environment: { A: null } }, 'environment.A must be a string'],
    ['a NUL in a text', { handler: 'a\0b' }, 'handler must not have a NUL character'],
    ['a repeated port', { rootfs: { ports: ['80', 'tcp:80'] } }, 'rootfs.ports[1] repeats tcp:80'],
    ['port 65536', { rootfs: { ports: ['65536'] } }, 'rootfs.ports[0] must be'],
    [
      'an unsafe mount',
      { rootfs: { mounts: [{ source: '/etc', target: '/x' }] } },
      'rootfs.mounts[0]: unsafe mount source: /etc',
    ],
    ['a mount without target', { rootfs: { mounts: [{ source: '/srv' }] } }, 'rootfs.mounts[0].target is required'],
    [
      'minInstance above maxInstance',
      { minInstance: 5, maxInstance: 4 },
      'minInstance must not be larger than maxInstance: 5 > 4',
    ],
    ['minInstance above the default maxInstance', { minInstance: 101 }, '101 > 100'],
    ['maxInstance 1001', { maxInstance: 1001 }, 'maxInstance must be between 0 and 1000'],
    ['minInstance in words', { minInstance: 'one' }, 'minInstance must be an integer or a string of decimal digits'],
    ['concurrentNum 0', { concurrentNum: '0' }, 'concurrentNum must be between 1 and 1000'],
    [
      'a pre_stop of 181 s',
      { extendedTimeout: { pre_stop: 181 } },
      'extendedTimeout.pre_stop must be between 0 and 180',
    ],
    [
      'a slaQuota of 499 ms',
      { autoScaleConfig: { slaQuota: 499 } },
      'autoScaleConfig.slaQuota must be 0 (not set) or at least 500',
    ],
    ['an invalid sha512', { s3CodePath: { sha512: 'abc' } }, 's3CodePath.sha512 must be 128 hexadecimal digits'],
    [
      'a negative custom resource',
      { customResources: { gpu: -1 } },
      'customResources.gpu must be a number that is not negative',
    ],
    ['a text for a boolean', { isFuncPublic: 'yes' }, 'isFuncPublic must be a boolean'],
    ['an invalid port', { expose: { port: -1 } }, 'expose.port must be between 0 and 65535, got -1'],
    ['faas without handler', { ...FAAS, handler: '' }, 'handler is required for kind faas'],
    ['faas without storageType', { ...FAAS, storageType: '' }, 'storageType is required for kind faas'],
    ['faas without codePath', { ...FAAS, codePath: '' }, 'codePath is required for storageType local'],
    [
      'faas on s3 without object',
      { ...FAAS, storageType: 's3', s3CodePath: { bucketId: 'b' } },
      's3CodePath.objectId is required',
    ],
  ])('a function with %s is refused', (_, changes, problem) => {
    expect(problemsOf({ ...SMALLEST, ...changes }).join('; ')).toContain(problem);
  });
});

describe('accepted values', () => {
  test.each<[string, Record<string, unknown>, Partial<FunctionSpec>]>([
    [
      'a description of 1024 characters of two code units',
      { description: '🐦'.repeat(1024) },
      { description: '🐦'.repeat(1024) },
    ],
    ['any runtime of up to 64 characters', { runtime: 'x'.repeat(64) }, { runtime: 'x'.repeat(64) }],
    [
      'decimal strings for instances',
      { minInstance: '1', maxInstance: '2', concurrentNum: '3' },
      { minInstance: 1, maxInstance: 2, concurrentNum: 3 },
    ],
    ['the edges of timeout', { timeout: 8_640_000 }, { timeout: 8_640_000 }],
    [
      'port items as they were sent',
      { rootfs: { ports: ['8080', 'udp:53'] } },
      { rootfs: expect.objectContaining({ ports: ['8080', 'udp:53'] }) },
    ],
    ['an empty kind', { kind: '' }, { kind: 'yrlib' }],
    ['a faas function with all fields', FAAS, { kind: 'faas', handler: 'a.b' }],
    [
      's3 code',
      { ...FAAS, storageType: 's3', s3CodePath: { bucketId: 'b', objectId: 'o' } },
      { s3CodePath: { bucketId: 'b', objectId: 'o', bucketUrl: '', token: '', sha512: '' } },
    ],
    [
      'autoScaleConfig with its defaults',
      { autoScaleConfig: {} },
      { autoScaleConfig: { slaQuota: 0, scaleDownTime: 60_000, burstScaleNum: 1000 } },
    ],
  ])('a function with %s is accepted', (_, changes, expected) => {
    expect(specOf({ ...SMALLEST, ...changes })).toMatchObject(expected);
  });
});

describe('update of a function', () => {
  const stored = specOf({ ...FAAS, environment: { A: '1' }, rootfs: { imageurl: 'x', user: 'u' } });

  test('an update is refused when revisionId is missing', () => {
    expect(readUpdate({})).toEqual({ ok: false, problems: ['revisionId is required'] });
    expect(readUpdate({ revisionId: '' })).toEqual({ ok: false, problems: ['revisionId is required'] });
  });

  test('absent and null fields keep their stored values', () => {
    const read = readUpdate({ revisionId: 'r', description: null });
    expect(read).toEqual({ ok: true, value: { revisionId: 'r', changes: {} } });
    expect(mergeUpdate(stored, {})).toEqual({ ok: true, value: stored });
  });

  test('a sent field replaces the whole stored value, even when it is an object or a map', () => {
    const read = readUpdate({ revisionId: 'r', environment: { B: '2' }, rootfs: { imageurl: 'y' } });
    const merged = mergeUpdate(stored, read.ok ? read.value.changes : {});
    expect(merged).toMatchObject({ ok: true, value: { environment: { B: '2' }, rootfs: { imageurl: 'y', user: '' } } });
    expect(merged.ok && merged.value.environment).toEqual({ B: '2' });
  });

  test.each(['name', 'runtime', 'kind'] as const)(
    'an update may send %s, and is refused when the value differs',
    field => {
      const other = { name: '0@demo@other', runtime: 'go', kind: 'agent' }[field];
      expect(mergeUpdate(stored, { [field]: stored[field] })).toMatchObject({ ok: true });
      expect(mergeUpdate(stored, { [field]: other })).toEqual({
        ok: false,
        problems: [`${field} of a function cannot change: it is "${stored[field]}", got "${other}"`],
      });
    },
  );

  test('rules over several fields are checked on the merged function', () => {
    expect(mergeUpdate(stored, { minInstance: 200 })).toMatchObject({ ok: false });
    expect(mergeUpdate(stored, { handler: '' })).toMatchObject({
      ok: false,
      problems: ['handler is required for kind faas'],
    });
  });

  const body = fc.record(
    {
      cpu: fc.integer({ min: 1, max: 1_000_000 }),
      memory: fc.integer({ min: 16, max: 4096 }),
      timeout: fc.integer({ min: 1, max: 8_640_000 }),
      description: fc.string({ maxLength: 100 }).filter(text => !text.includes('\0')),
      environment: fc.dictionary(fc.constantFrom('A', 'B', 'C'), fc.constantFrom('1', '2')),
      minInstance: fc.integer({ min: 0, max: 100 }),
      maxInstance: fc.integer({ min: 100, max: 1000 }),
      idleTime: fc.constant(5),
    },
    { requiredKeys: [] },
  );

  test('a merge changes exactly the fields that were sent, and the later of two updates wins', () => {
    fc.assert(
      fc.property(body, body, (first, second) => {
        const apply = (spec: FunctionSpec, sent: Record<string, unknown>): FunctionSpec => {
          const read = readUpdate({ revisionId: 'r', ...sent });
          const merged = mergeUpdate(spec, read.ok ? read.value.changes : {});
          if (!merged.ok) throw new Error(merged.problems.join());
          return merged.value;
        };
        expect(apply(apply(stored, first), second)).toEqual({ ...stored, ...first, ...second });
        expect(apply(apply(stored, first), first)).toEqual(apply(stored, first));
      }),
    );
  });

  test('readRegister and readUpdate never throw for any JSON body', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom(...Object.keys(FUNCTION_FIELDS), 'revisionId'), fc.jsonValue()),
        sent => {
          readRegister(sent);
          readUpdate(sent);
        },
      ),
    );
  });
});

test('an inputSchema is kept as it is, and validateInput needs one', () => {
  const inputSchema = { type: 'object', required: ['a'], 'x-own': [1] };
  const read = (more: object) => readRegister({ ...SMALLEST, ...more });
  expect(read({ inputSchema, validateInput: true })).toMatchObject({ ok: true, value: { inputSchema } });
  for (const schema of [{}, undefined]) {
    expect(read({ inputSchema: schema, validateInput: true })).toMatchObject({
      problems: ['validateInput needs an inputSchema'],
    });
  }
  expect(read({ inputSchema: { type: 'text' } })).toMatchObject({
    problems: [expect.stringMatching(/^inputSchema\.type must be one or a list of object, /)],
  });
  expect(read({ inputSchema: { title: 'x'.repeat(70_000) } })).toMatchObject({
    problems: ['inputSchema must have at most 65536 bytes as JSON, got 70012'],
  });
});

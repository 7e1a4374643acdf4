import { describe, expect, test } from 'vitest';
import { testRegistry } from '../../test/registry/registry.ts';
import type { FunctionSpec } from '../core/function.ts';
import { readRegister } from '../core/function.ts';
import { LATEST } from '../core/urn.ts';

const T = 'default';
const NAME = '0@demo@hello';
const URN = `sn:cn:yrk:${T}:function:${NAME}`;
const specOf = (changes: Record<string, unknown> = {}): FunctionSpec => {
  const read = readRegister({ name: NAME, kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512, ...changes });
  if (!read.ok) throw new Error(read.problems.join('; '));
  return read.value;
};

test('a URN resolves to the instance settings of its function version', async () => {
  await using test = await testRegistry();
  await test.registry.functions.register(
    T,
    specOf({
      handler: 'app.handle',
      codePath: '/opt/code',
      environment: { A: '1' },
      poolId: 'warm',
      timeout: 60,
      sandboxType: 'docker',
      rootfs: {
        imageurl: 'img',
        user: 'me',
        ports: ['80'],
        mounts: [{ source: '/srv/code', target: '/opt/code', readonly: true }],
      },
      extendedHandler: { initializer: 'app.init', pre_stop: 'app.stop' },
      extendedTimeout: { initializer: 5, pre_stop: 7 },
    }),
  );
  expect(await test.registry.resolver.resolveFunction(T, `${URN}:latest`)).toEqual({
    functionName: NAME,
    dependencies: '',
    httpProfile: '',
    functionVersion: LATEST,
    functionUrn: `${URN}:$latest`,
    sandboxType: 'docker',
    runtime: 'python3.11',
    codePath: '/opt/code',
    handler: 'app.handle',
    initializer: 'app.init',
    preStop: 'app.stop',
    imageUrl: 'img',
    user: 'me',
    ports: [{ protocol: 'tcp', port: 80 }],
    mounts: [{ source: '/srv/code', target: '/opt/code', readonly: true }],
    cpuMillis: 500,
    memoryMb: 512,
    environment: { A: '1' },
    callTimeoutMs: 60_000,
    initTimeoutMs: 5000,
    preStopTimeoutMs: 7000,
    poolId: 'warm',
  });
});

test('each published version resolves to its own revision; a URN without a version means $latest', async () => {
  await using test = await testRegistry();
  const { functions, resolver } = test.registry;
  await functions.register(T, specOf({ environment: { A: '1' } }));
  const { revisionId } = await functions.get(T, NAME, LATEST);
  await functions.publish(T, NAME, { revisionId, versionNumber: 'v1', versionDesc: '', kind: '' });
  await functions.update(T, NAME, { revisionId, changes: { environment: { A: '2' } } });
  expect((await resolver.resolveFunction(T, `${URN}:v1`)).environment).toEqual({ A: '1' });
  expect(await resolver.resolveFunction(T, URN)).toMatchObject({ environment: { A: '2' }, functionVersion: LATEST });
});

describe('a URN that no agent can use', () => {
  test.each<[string, string, string]>([
    ['an invalid URN', 'hello', 'hello is not a URN; expected sn:cn:<business>:<tenant>:function:<name>:<version>'],
    ['an unknown function', `sn:cn:yrk:${T}:function:0@demo@no:$latest`, 'function [0@demo@no] is not found'],
    ['an unknown version', `${URN}:v9`, `function [${NAME}:v9] is not found`],
    ['a function of another tenant', `sn:cn:yrk:acme:function:${NAME}:$latest`, 'is not found. check input parameters'],
    [
      'a function of another business',
      `sn:cn:other:${T}:function:${NAME}:$latest`,
      'is not found. check input parameters',
    ],
    [
      'a function of kind faas',
      `sn:cn:yrk:${T}:function:0@demo@faas:$latest`,
      'is of kind faas; an agent needs a function of kind agent',
    ],
    ['a function of kind yrlib', `sn:cn:yrk:${T}:function:0@demo@lib:$latest`, 'is of kind yrlib'],
  ])('resolveFunction fails with "invalid function" for %s', async (_, urn, why) => {
    await using test = await testRegistry();
    const { functions, resolver } = test.registry;
    await functions.register(T, specOf());
    await functions.register('acme', specOf());
    await functions.register(T, specOf({ name: '0@demo@lib', kind: 'yrlib' }));
    await functions.register(
      T,
      specOf({ name: '0@demo@faas', kind: 'faas', handler: 'a.b', storageType: 'local', codePath: '/c' }),
    );
    await expect(resolver.resolveFunction(T, urn)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringMatching(/^invalid function: /),
    });
    await expect(resolver.resolveFunction(T, urn)).rejects.toThrow(why);
  });
});

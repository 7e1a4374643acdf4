import { describe, expect, test } from 'vitest';
import type { InstanceSpec } from '../core/instance.ts';
import { type StartSpec, toInit, toSandboxSpec } from './sandbox-spec.ts';

const RULES = { maxProcesses: 256, network: 'host', requireIsolation: true } as const;

function specOf(changes: Partial<InstanceSpec> = {}): InstanceSpec {
  return {
    tenant: 't',
    namespace: 'ns',
    name: 'a',
    sandboxType: 'process',
    runtime: 'python3.9',
    codePath: '',
    handler: 'm.f',
    initializer: 'm.i',
    preStop: 'm.p',
    rootfs: { type: 'host', imageUrl: 'img', user: '' },
    ports: [],
    cpuMillis: 500,
    memoryMb: 64,
    env: {},
    workspace: '',
    mounts: [],
    callTimeoutMs: 1000,
    initTimeoutMs: 2000,
    preStopTimeoutMs: 0,
    concurrency: 3,
    functionName: 'f',
    functionVersion: 'v1',
    functionUrn: 'urn',
    ...changes,
  };
}

const rootfs = (user: string, type: 'host' | 'image' = 'host') => ({ type, imageUrl: 'img', user });
const sandboxOf = (changes: Partial<InstanceSpec>) =>
  toSandboxSpec('id', 'secret', { ...specOf(changes), env: {}, secretVariables: [], ...changes } as StartSpec, RULES);

test('a sandbox spec has the limits, rules and command of its instance', () => {
  expect(sandboxOf({})).toMatchObject({
    instanceId: 'id',
    tenant: 't',
    secret: 'secret',
    command: { kind: 'python', version: '3.9' },
    cpuMillis: 500,
    memoryMb: 64,
    maxProcesses: 256,
    maxOpenFiles: 4096,
    network: 'host',
    requireIsolation: true,
  });
});

describe('the workspace', () => {
  test.each([
    ['', '/workspace'],
    ['alice', '/home/alice'],
    ['alice:staff', '/home/alice'],
    ['1000', '/home/1000'],
  ])(
    'the workspace of user "%s" is mounted at %s before every other mount, as HOME and working directory',
    (user, target) => {
      const other = { source: '/srv/x', target: '/x', readonly: true };
      const spec = sandboxOf({ workspace: '/srv/ws', rootfs: rootfs(user), mounts: [other], codePath: '/x' });
      expect(spec.mounts).toEqual([{ source: '/srv/ws', target, readonly: false }, other]);
      expect(spec.workingDir).toBe(target);
      expect(spec.env.HOME).toBe(target);
    },
  );

  test('no workspace is mounted when the spec has none', () => {
    expect(sandboxOf({}).mounts).toEqual([]);
  });
});

test.each([
  ['host', '', '/tmp'],
  ['host', 'alice', '/tmp'],
  ['image', '', '/root'],
  ['image', 'root', '/root'],
  ['image', 'alice', '/home/alice'],
] as const)('HOME on rootfs %s for user "%s" is %s when there is no workspace', (type, user, home) => {
  expect(sandboxOf({ rootfs: rootfs(user, type) }).env.HOME).toBe(home);
});

const mountAt = (target: string) => [{ source: '/srv', target, readonly: true }];

test.each([
  ['the code directory, when it is mounted', { codePath: '/code', mounts: mountAt('/code') }, '/code'],
  ['the code directory, when it is below a mount', { codePath: '/code/app', mounts: mountAt('/code') }, '/code/app'],
  ['the code directory of an image', { codePath: '/app', rootfs: rootfs('', 'image') }, '/app'],
  ['/ when the code path is only a label', { codePath: '/code' }, '/'],
  ['/ when the code path only begins like a mount', { codePath: '/code2', mounts: mountAt('/code') }, '/'],
  ['/ when the code path is not absolute', { codePath: 'code', rootfs: rootfs('', 'image') }, '/'],
  ['/ without a code path', {}, '/'],
])('the working directory is %s', (_title, changes, expected) => {
  expect(sandboxOf(changes).workingDir).toBe(expected);
});

test('the caller’s variables override the defaults, and the platform’s variables override both', () => {
  const { env } = sandboxOf({
    codePath: '/code',
    env: { PATH: '/mine', HOME: '/h', LANG: 'C', X: 'y', ROOKERY_TENANT: 'forged' },
  });
  expect(env).toEqual({
    PATH: '/mine',
    HOME: '/h',
    LANG: 'C',
    X: 'y',
    ROOKERY_INSTANCE_ID: 'id',
    ROOKERY_TENANT: 't',
    ROOKERY_FUNCTION: 'f',
    ROOKERY_VERSION: 'v1',
    ROOKERY_CODE_PATH: '/code',
    ROOKERY_SESSION_CTX_ID: '',
  });
});

test('the environment of a sandbox has no variable of the service’s own environment', () => {
  expect(Object.keys(sandboxOf({}).env).toSorted()).toEqual([
    'HOME',
    'LANG',
    'PATH',
    'ROOKERY_CODE_PATH',
    'ROOKERY_FUNCTION',
    'ROOKERY_INSTANCE_ID',
    'ROOKERY_SESSION_CTX_ID',
    'ROOKERY_TENANT',
    'ROOKERY_VERSION',
  ]);
});

test('a sandbox of an image keeps the PATH of the image unless the caller sets one', () => {
  expect(sandboxOf({ rootfs: rootfs('', 'image') }).env).not.toHaveProperty('PATH');
  expect(sandboxOf({ rootfs: rootfs('', 'image'), env: { PATH: '/mine' } }).env.PATH).toBe('/mine');
});

test('an unavailable runtime is refused as an invalid function', () => {
  expect(() => sandboxOf({ runtime: 'custom image' })).toThrow(
    'invalid function: runtime custom image is not available',
  );
});

test('an http runtime gets the configured network like every other runtime', () => {
  expect(sandboxOf({ runtime: 'http', codePath: '/code' }).network).toBe('host');
});

test('the init message has the entry points, limits and context of the instance', () => {
  expect(toInit('id', specOf({ codePath: '/code' }))).toEqual({
    codePath: '/code',
    handler: 'm.f',
    initializer: 'm.i',
    preStop: 'm.p',
    initTimeoutMs: 2000,
    concurrency: 3,
    maxResultBytes: 6_291_456,
    instanceId: 'id',
    tenant: 't',
    namespace: 'ns',
    name: 'a',
    functionName: 'f',
    version: 'v1',
    memoryMb: 64,
    cpuMillis: 500,
  });
});

test('a sandbox with a template has accounts, the marks of E2B and the home of its user', () => {
  const spec = sandboxOf({ template: 'base', env: { E2B_SANDBOX: 'no', HOME: '/tmp' } });
  expect(spec).toMatchObject({
    hasAccounts: true,
    workingDir: '/home/user',
    env: { HOME: '/tmp', USER: 'user', E2B_SANDBOX: 'true', E2B_SANDBOX_ID: 'id', E2B_TEMPLATE_ID: 'base' },
  });
  expect(spec.platformMounts).toEqual([]);
  expect(sandboxOf({}).hasAccounts).toBeUndefined();
});

test('a container of an image without code has accounts and the programs of the installation', () => {
  const rootfs = { type: 'image', imageUrl: 'img', user: '' } as const;
  const image = specOf({ template: 'img', sandboxType: 'docker', rootfs });
  const given = { ...image, env: {}, secretVariables: [] } as StartSpec;
  const spec = toSandboxSpec('id', 'secret', given, { ...RULES, programsDir: '/missing/python' });
  expect(spec).toMatchObject({ hasAccounts: true, env: { E2B_TEMPLATE_ID: 'img' } });
  expect(spec.env.PATH).toBeUndefined();
  expect(spec.platformMounts).toEqual([
    { source: '/missing/python/rookery_sandbox', target: '/opt/rookery/tools', readonly: true },
    ...[{ source: '/missing/python/rookery_interpreter', target: '/opt/rookery/programs/rookery_interpreter' }].map(
      mount => ({ ...mount, readonly: true }),
    ),
  ]);
});

test('a sandbox with a template gets the stand-ins of the installation', () => {
  const given = { ...specOf({ template: 'base' }), env: {}, secretVariables: [] } as StartSpec;
  const { env, platformMounts } = toSandboxSpec('id', 'secret', given, { ...RULES, programsDir: '/missing/python' });
  expect(env.PATH).toMatch(/^\/opt\/rookery\/tools\/bin:\/usr\/.*:\/bin:\/opt\/rookery\/tools\/fallback$/);
  expect(platformMounts).toEqual([
    { source: '/missing/python/rookery_sandbox', target: '/opt/rookery/tools', readonly: true },
  ]);
});

import { expect, test } from 'vitest';
import type { SandboxSpec } from '../driver.ts';
import { type ContainerPlan, containerOptions } from './container.ts';

function planOf(user: string): ContainerPlan {
  const spec: SandboxSpec = {
    instanceId: 'i',
    tenant: 't',
    command: { kind: 'python', version: '3.11' },
    secret: 's',
    rootfs: { type: 'image', imageUrl: 'an-image', user },
    env: {},
    workingDir: '/',
    mounts: [],
    ports: [],
    cpuMillis: 500,
    memoryMb: 128,
    maxProcesses: 16,
    maxOpenFiles: 64,
    network: 'host',
    requireIsolation: false,
  };
  return {
    spec,
    installation: 'x',
    shared: '/s',
    mounts: [],
    network: 'n',
    argv: ['python3'],
    securityOptions: [],
    env: {},
  };
}

test.each([
  ['', '0'],
  ['worker', 'worker'],
  ['1000:1000', '1000:1000'],
])('the user "%s" is %s in the container: none is root, whatever the image says', (user, expected) => {
  expect(containerOptions(planOf(user)).User).toBe(expected);
});

test('cpu is shares, 1024 for 1000; memory is with swap', () => {
  const { HostConfig } = containerOptions(planOf(''));
  expect(HostConfig).toMatchObject({ CpuShares: 512, Memory: 128 * 2 ** 20, MemorySwap: 128 * 2 ** 20 });
});

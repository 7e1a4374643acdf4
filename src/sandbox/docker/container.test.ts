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
])('containerOptions maps the user "%s" to %s and ignores the user of the image', (user, expected) => {
  expect(containerOptions(planOf(user)).User).toBe(expected);
});

test('containerOptions sets 1024 CPU shares per 1000 cpuMillis, and a memory limit that includes swap', () => {
  const { HostConfig } = containerOptions(planOf(''));
  expect(HostConfig).toMatchObject({ CpuShares: 512, Memory: 128 * 2 ** 20, MemorySwap: 128 * 2 ** 20 });
});

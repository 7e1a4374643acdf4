import { expect, test } from 'vitest';
import type { SandboxSpec } from '../driver.ts';
import { type NetworkKind, type NetworkOptions, networkKindOf } from './network.ts';

const PYTHON = {
  command: { kind: 'python', version: '3.11' },
  network: 'default',
  ports: [],
} as unknown as SandboxSpec;
const HTTP = { ...PYTHON, command: { kind: 'http', argv: ['/server'] } } as unknown as SandboxSpec;
const NONE: SandboxSpec = { ...HTTP, network: 'none' };
const MISSING = 'there are none';

test.each<[string, SandboxSpec, NetworkOptions['use'], string | null, NetworkKind]>([
  ['a sandbox without a network is not a usual start', NONE, 'own', null, 'none'],
  ['a sandbox without a network on a machine with shared networks', NONE, 'shared', MISSING, 'none'],
  ['an own network is usual on a machine with own networks', HTTP, 'own', null, null],
  ['an HTTP server gets an own network on a machine with shared networks', HTTP, 'shared', null, 'own'],
  ['an HTTP server has no network on a machine without own networks', HTTP, 'shared', MISSING, 'none'],
  ['an HTTP server has no network although own networks are configured', HTTP, 'own', MISSING, 'none'],
  ['other code shares the network of the host on such a machine', PYTHON, 'own', MISSING, null],
  ['other code shares the network of the host when configured', PYTHON, 'shared', null, null],
])('networkKindOf chooses the kind of network: %s', (_, spec, use, missing, kind) => {
  expect(networkKindOf(spec, use, missing)).toBe(kind);
});

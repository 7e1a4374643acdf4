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
  ['none is never the usual one', NONE, 'own', null, 'none'],
  ['… also where all share that of the host', NONE, 'shared', MISSING, 'none'],
  ['one of its own is the usual one where all have it', HTTP, 'own', null, null],
  ['… is made where others share that of the host', HTTP, 'shared', null, 'own'],
  ['a server is alone on its port where there is none', HTTP, 'shared', MISSING, 'none'],
  ['… also where all should have it', HTTP, 'own', MISSING, 'none'],
  ['other code shares that of the host then', PYTHON, 'own', MISSING, null],
  ['… and where it is to', PYTHON, 'shared', null, null],
])('networkKindOf chooses the kind of network: %s', (_, spec, use, missing, kind) => {
  expect(networkKindOf(spec, use, missing)).toBe(kind);
});

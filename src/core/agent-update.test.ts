import { expect, test } from 'vitest';
import type { AgentFunction } from './agent.ts';
import { readAgentUpdate, respecified, updatedSpec } from './agent-update.ts';
import type { InstanceSpec } from './instance.ts';

const SPEC = {
  ...{ tenant: 't', namespace: 'n', name: 'a', sandboxType: 'process', runtime: 'python3.11', codePath: '/code' },
  ...{ handler: 'app.handle', initializer: 'app.init', preStop: '', ports: [], cpuMillis: 500, memoryMb: 256 },
  ...{ rootfs: { type: 'host', imageUrl: 'host', user: '' }, env: { A: '1' }, workspace: '/w', mounts: [] },
  ...{ callTimeoutMs: 1, initTimeoutMs: 2, preStopTimeoutMs: 3, concurrency: 1 },
  ...{ functionName: '', functionVersion: '', functionUrn: '' },
  durable: { schema: 1, sleepMs: 60_000, entries: { alarm: 'app.on_alarm' } },
  expose: { port: 80, access: 'token' },
} as InstanceSpec;

const update = (body: Parameters<typeof readAgentUpdate>[0]) => updatedSpec(SPEC, readAgentUpdate(body));

test('an update keeps what it does not name', () => {
  expect(update({ runtime_spec: { cpu: 1000 } })).toEqual({ ...SPEC, cpuMillis: 1000 });
});

test('null removes the address and the restart policy', () => {
  expect(update({ expose: null, restart_policy: null })).not.toHaveProperty('expose');
});

test('an update changes single entries, and an empty one removes an entry', () => {
  const { durable, initializer } = update({ runtime_spec: { extendedHandler: { sleep: 'app.on_sleep' } } });
  expect({ durable, initializer }).toEqual({
    durable: { schema: 1, sleepMs: 60_000, entries: { alarm: 'app.on_alarm', sleep: 'app.on_sleep' } },
    initializer: 'app.init',
  });
  expect(update({ runtime_spec: { extendedHandler: { alarm: '', initializer: '' } } })).toMatchObject({
    initializer: '',
    durable: { schema: 1, sleepMs: 60_000 },
  });
});

test('an idle time of an agent that ends after an idle time is refused', () => {
  const read = readAgentUpdate({ durable: { sleep_after_seconds: 5 } });
  expect(updatedSpec(SPEC, read).durable?.sleepMs).toBe(5000);
  expect(() => updatedSpec({ ...SPEC, idleMs: 1000 }, read)).toThrow('exclude each other');
});

test('another version of the function keeps the variables and mounts of the caller', () => {
  const mount = (source: string) => ({ source, target: source, readonly: true });
  const version = (environment: Record<string, string>, mounts: string[]): AgentFunction => ({
    ...{ functionName: '0@a@b', functionVersion: '1', functionUrn: 'u', sandboxType: '', runtime: 'python3.11' },
    ...{
      codePath: '/code',
      handler: 'app.handle',
      initializer: '',
      preStop: '',
      imageUrl: 'host',
      user: '',
      ports: [],
    },
    ...{ environment, mounts: mounts.map(mount), cpuMillis: 1, memoryMb: 2, callTimeoutMs: 3 },
    ...{ initTimeoutMs: 4, preStopTimeoutMs: 5 },
  });
  const before = version({ F: 'old', A: '0' }, ['/f']);
  const after = version({ F: 'new', A: '0' }, ['/g']);
  const made = { ...SPEC, env: { F: 'old', A: '1' }, mounts: [mount('/f'), mount('/own')] };
  const defaults = { defaultSandboxType: 'process' } as const;
  expect(respecified(made, {}, { before, after }, defaults)).toMatchObject({
    ...{ env: { F: 'new', A: '1' }, mounts: [mount('/g'), mount('/own')], workspace: '/w' },
    durable: { schema: 1, sleepMs: 60_000 },
  });
  expect(() => respecified(made, {}, { before, after: { ...after, sandboxType: 'docker' } }, defaults)).toThrow(
    'cannot change',
  );
});

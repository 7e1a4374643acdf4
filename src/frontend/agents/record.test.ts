import { expect, test } from 'vitest';
import { createBody, runtimeSpec } from '../../../test/http/frontend.ts';
import { readAgentCreate } from '../../core/agent.ts';
import { type Instance, NO_SANDBOX, type Placement } from '../../core/instance.ts';
import { agentRecord } from './record.ts';

function recordOf(placement?: Placement): Record<string, unknown> {
  const body = { ...createBody(), runtime_spec: runtimeSpec() } as Parameters<typeof readAgentCreate>[0];
  const request = readAgentCreate(body, 'default', { defaultSandboxType: 'process' });
  if (request.mode !== 'inline') throw new Error('the sample is not inline');
  const instance: Instance = {
    ...{ id: 'i', spec: request.spec, status: 'RUNNING', statusReason: '', loadError: '', restarts: 0 },
    restartAtMs: 0,
    ...{ createdAtMs: 1, startedAtMs: 1, nodeId: 'replica-1' },
    sandbox: { ...NO_SANDBOX, ...(placement && { placement }) },
  };
  return agentRecord(instance, null);
}

test('a sandbox on the machine of the service has the node of the service, and nothing of pools', () => {
  const record = recordOf();
  expect(record.node_id).toBe('replica-1');
  expect(Object.keys(record).filter(name => name.startsWith('pool'))).toEqual([]);
});

test('a pod has the node of its cluster, and its pool', () => {
  expect(recordOf({ nodeName: 'n7', poolId: 'p', whyNoPool: '' })).toMatchObject({ node_id: 'n7', pool_id: 'p' });
});

test('a pod of its own has no pool, and says why', () => {
  expect(recordOf({ nodeName: 'n7', poolId: null, whyNoPool: 'none fits' })).toMatchObject({
    pool_id: null,
    pool_reason: 'none fits',
  });
});

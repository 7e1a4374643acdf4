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
    ...{ labels: {}, expiresAtMs: 0, onExpiry: 'delete', pausedAtMs: 0 },
    sandbox: { ...NO_SANDBOX, ...(placement && { placement }) },
  };
  return agentRecord(instance, null);
}

test('the record of a local sandbox has the service’s node and no pool fields', () => {
  const record = recordOf();
  expect(record.node_id).toBe('replica-1');
  expect(Object.keys(record).filter(name => name.startsWith('pool'))).toEqual([]);
});

test('the record of a pod has the pod’s cluster node and pool', () => {
  expect(recordOf({ nodeName: 'n7', poolId: 'p', whyNoPool: '' })).toMatchObject({ node_id: 'n7', pool_id: 'p' });
});

test('the record of a pod without a pool has the reason', () => {
  expect(recordOf({ nodeName: 'n7', poolId: null, whyNoPool: 'none fits' })).toMatchObject({
    pool_id: null,
    pool_reason: 'none fits',
  });
});

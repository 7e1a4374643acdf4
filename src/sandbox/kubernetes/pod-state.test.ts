import type { V1Pod } from '@kubernetes/client-node';
import { describe, expect, test } from 'vitest';
import { describeExit } from '../driver.ts';
import { stateOf } from './pod-state.ts';

/** Creates a pod in the form of the API: times are texts. */
function pod(status: object, metadata: object = {}): V1Pod {
  return { metadata: { name: 'p', ...metadata }, spec: { nodeName: 'node-7' }, status } as unknown as V1Pod;
}

const container = (state: object, more: object = {}) => ({ containerStatuses: [{ name: 'instance', state, ...more }] });
const RUNNING = { running: { startedAt: '2026-01-01T00:00:00Z' } };

function endOf(status: object, metadata?: object): string {
  const state = stateOf(pod(status, metadata));
  return state.state === 'ended' ? describeExit(state.exit) : state.state;
}

describe('stateOf on a pod that has not started', () => {
  test.each([
    [{}, '', false],
    [container({ waiting: { reason: 'ContainerCreating' } }), '', false],
    [container({ waiting: { reason: 'ErrImagePull', message: 'not found' } }), 'ErrImagePull: not found', false],
    [
      container({ waiting: { reason: 'ImagePullBackOff', message: 'Back-off pulling image "x"' } }),
      'ImagePullBackOff: Back-off pulling image "x"',
      true,
    ],
    [
      { initContainerStatuses: [{ name: 'i', state: { waiting: { reason: 'InvalidImageName' } } }] },
      'InvalidImageName',
      true,
    ],
    [
      container({ waiting: { reason: 'CreateContainerConfigError', message: 'no secret' } }),
      'CreateContainerConfigError: no secret',
      true,
    ],
    [
      {
        conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/1 nodes: cpu' }],
      },
      'Unschedulable: 0/1 nodes: cpu',
      false,
    ],
  ])('stateOf reports a starting pod and the reason for %j', (status, why, isHopeless) => {
    expect(stateOf(pod(status))).toEqual({ state: 'starting', why, isHopeless });
  });
});

describe('stateOf on a pod that has ended', () => {
  const terminated = (exitCode: number, reason: string) => container({ terminated: { exitCode, reason } });

  test.each([
    [{ phase: 'Failed', ...terminated(3, 'Error') }, 'exit code 3'],
    [{ phase: 'Succeeded', ...terminated(0, 'Completed') }, 'exit code 0'],
    [{ phase: 'Failed', ...terminated(137, 'OOMKilled') }, 'signal SIGKILL (out of memory)'],
    [{ phase: 'Failed', ...terminated(139, 'Error') }, 'signal SIGSEGV'],
    [
      {
        phase: 'Failed',
        reason: 'Evicted',
        message: 'The node was low on resource: memory.',
        ...terminated(137, 'Error'),
      },
      'Evicted: The node was low on resource: memory. (signal SIGKILL)',
    ],
    [
      { phase: 'Failed', reason: 'OutOfcpu', message: 'Node didn’t have enough resource' },
      'OutOfcpu: Node didn’t have enough resource (unknown reason)',
    ],
    [
      {
        phase: 'Failed',
        conditions: [
          { type: 'DisruptionTarget', status: 'True', reason: 'PreemptionByScheduler', message: 'make room' },
        ],
        ...terminated(143, 'Error'),
      },
      'PreemptionByScheduler: make room (signal SIGTERM)',
    ],
    [
      {
        phase: 'Running',
        conditions: [
          {
            type: 'DisruptionTarget',
            status: 'True',
            reason: 'EvictionByEvictionAPI',
            message: 'Eviction API: evicting',
          },
        ],
        ...terminated(0, 'Completed'),
      },
      'Evicted: Eviction API: evicting (exit code 0)',
    ],
    // The service itself sets the deadline, so DeadlineExceeded is not a cause from the cluster.
    [{ phase: 'Failed', reason: 'DeadlineExceeded', ...terminated(137, 'Error') }, 'signal SIGKILL'],
  ])('stateOf reports how the pod ended for %j', (status, words) => {
    expect(endOf(status)).toBe(words);
  });

  test('stateOf reports the deletion of the pod as the cause of its end', () => {
    const deleted = { deletionTimestamp: '2026-01-01T00:00:00Z' };
    expect(endOf({ phase: 'Failed', ...terminated(137, 'Error') }, deleted)).toBe(
      'its pod was deleted (signal SIGKILL)',
    );
  });
});

describe('stateOf on a pod whose node may be lost', () => {
  const running = { phase: 'Running', ...container(RUNNING, { ready: true }) };
  const ready = (status: string, reason?: string) => ({ conditions: [{ type: 'Ready', status, reason }] });

  test.each([
    ['the pod runs and is ready', { ...running, ...ready('True') }, {}, 'running'],
    [
      'the cluster reports the pod as not ready, and the kubelet did not',
      { ...running, ...ready('False') },
      {},
      'unknown',
    ],
    [
      'the kubelet reports the pod as not ready',
      { ...running, ...ready('False', 'ContainersNotReady') },
      {},
      'running',
    ],
    ['the end of the pod is overdue', running, { deletionTimestamp: '2026-01-01T00:00:00Z' }, 'unknown'],
    ['the pod is ending', running, { deletionTimestamp: '2026-01-01T00:09:50Z' }, 'running'],
  ])('stateOf reports the last known state or unknown when %s', (_title, status, metadata, state) => {
    expect(stateOf(pod(status, metadata), Date.parse('2026-01-01T00:10:00Z')).state).toBe(state);
  });
});

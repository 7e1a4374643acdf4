import type { V1Pod } from '@kubernetes/client-node';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { describeExit, type ExitResult } from '../driver.ts';
import type { KubernetesApi } from './cluster.ts';
import { ANNOTATION_CLAIMED_AT, LABEL_INSTANCE } from './labels.ts';
import type { PodSandbox } from './pod-sandbox.ts';
import { SandboxPods } from './pods.ts';
import type { Watched, WatchListener } from './watched.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const CLEAN: ExitResult = { code: 0, signal: null, oomKilled: false, atMs: 0 };
const RUNNING = { state: { running: {} } };
const ENDED = { state: { terminated: { exitCode: 0, reason: 'Completed' } } };

/** Creates a pod in the form of the API: times are texts. */
function pod(main: object, status: object = {}, claimedAtMs = 1_000, metadata: object = {}): V1Pod {
  const annotations = { [ANNOTATION_CLAIMED_AT]: new Date(claimedAtMs).toISOString() };
  return {
    metadata: { name: 'p', uid: 'u', labels: { [LABEL_INSTANCE]: 'i' }, annotations, ...metadata },
    status: { phase: 'Running', containerStatuses: [{ name: 'instance', ...main }], ...status },
  } as unknown as V1Pod;
}

/**
 * Creates sandbox pods whose watch shows `first`.
 * `manager` is the exit that the pod manager returns from a wait. Without `manager` the wait never ends.
 */
function podsOf(first: V1Pod, manager?: ExitResult) {
  let now: V1Pod = first;
  const listeners = new Set<WatchListener<V1Pod>>();
  const watched = {
    isListed: true,
    problem: null,
    open: async () => undefined,
    get: () => now,
    subscribe(listener: WatchListener<V1Pod>) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const sandboxOf = (claimedAtMs = 1_000) =>
    ({
      ...{ instanceId: 'i', pod: 'p', uid: 'u', poolId: 'pool', claimedAtMs, containerId: '' },
      manager: { wait: () => (manager === undefined ? new Promise(() => undefined) : Promise.resolve(manager)) },
    }) as unknown as PodSandbox;
  return {
    pods: new SandboxPods({ namespace: 'n' } as KubernetesApi, watched as unknown as Watched<V1Pod>),
    sandboxOf,
    show(next: V1Pod) {
      const before = now;
      now = next;
      for (const listener of listeners) listener('p', next, before);
    },
  };
}

const signal = () => new AbortController().signal;

test('stateOf reports a reused pod as running for its new instance and as gone for the previous one', async () => {
  const { pods, sandboxOf, show } = podsOf(pod(RUNNING), CLEAN);
  const [first, second] = [sandboxOf(1_000), sandboxOf(2_000)];
  expect(await pods.wait(first, signal())).toMatchObject({ code: 0 });
  expect(pods.stateOf(first).state).toBe('ended');
  show(pod(RUNNING, {}, 2_000));
  expect(pods.stateOf(second).state).toBe('running');
  expect(pods.stateOf(first).state).toBe('gone');
});

test('wait reports an eviction even if the service itself ended an earlier instance of the pod', async () => {
  const { pods, sandboxOf, show } = podsOf(pod(RUNNING));
  pods.isEnding(sandboxOf(1_000));
  const evicted = { phase: 'Failed', reason: 'Evicted', message: 'The node was low on resource: memory.' };
  show(pod(ENDED, evicted, 2_000));
  const exit = await pods.wait(sandboxOf(2_000), signal());
  expect(describeExit(exit)).toBe('Evicted: The node was low on resource: memory. (exit code 0)');
});

test.each<[string, ExitResult | undefined]>([
  ['the container', undefined],
  ['the manager', { ...CLEAN, cause: 'the cluster ended its pod' }],
])('wait reports the reason of an eviction when the end of %s is known first', async (_, manager) => {
  const { pods, sandboxOf, show } = podsOf(pod(RUNNING), manager);
  const told = pods.wait(sandboxOf(), signal());
  await vi.advanceTimersByTimeAsync(10);
  show(pod(ENDED));
  await vi.advanceTimersByTimeAsync(500);
  show(pod(ENDED, { phase: 'Failed', reason: 'Evicted', message: 'low on memory' }));
  expect(describeExit(await told)).toBe('Evicted: low on memory (exit code 0)');
});

test('wait keeps the cause of the manager when the cluster gives no reason', async () => {
  const { pods, sandboxOf, show } = podsOf(pod(RUNNING), { ...CLEAN, cause: 'the cluster ended its pod' });
  const told = pods.wait(sandboxOf(), signal());
  await vi.advanceTimersByTimeAsync(10);
  show(pod(ENDED));
  await vi.advanceTimersByTimeAsync(3_000);
  expect(describeExit(await told)).toBe('the cluster ended its pod (exit code 0)');
});

test('wait reports an end without a reason once the pod is over, or after a short delay', async () => {
  const over = podsOf(pod(ENDED, { phase: 'Succeeded' }));
  expect(describeExit(await over.pods.wait(over.sandboxOf(), signal()))).toBe('exit code 0');
  const broken = podsOf(pod(ENDED));
  const told = broken.pods.wait(broken.sandboxOf(), signal());
  await vi.advanceTimersByTimeAsync(3_000);
  expect(describeExit(await told)).toBe('exit code 0');
});

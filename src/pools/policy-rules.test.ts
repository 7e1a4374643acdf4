import { describe, expect, test } from 'vitest';
import { POOL_STATUS, type PoolStatus, readPool } from '../core/pool.ts';
import type { PoolPod } from '../sandbox/pools.ts';
import { decide } from './policy.ts';

const NOW_MS = 10_000_000;
const SECOND_MS = 1000;

/** Makes a pod that is ready, idle and was never used. */
function pod(name: string, changes: Partial<PoolPod> = {}): PoolPod {
  return {
    ...{ name, uid: name, version: '1', isMember: true, isRetired: false, instanceId: null },
    ...{ state: 'ready', isReady: true, problem: '', isHopeless: false, isUsed: false, isUpToDate: true },
    ...{ createdAtMs: NOW_MS - 1000 * SECOND_MS, restsSinceMs: NOW_MS },
    ...changes,
  };
}

/** Returns the plan for a pool whose set already matches its specification. */
function plan(
  fields: object,
  pods: readonly PoolPod[],
  status: PoolStatus = POOL_STATUS.running,
  refusal: string | null = null,
) {
  const amounts = { cpu: '1m', memory: '1Mi' };
  const read = readPool({ id: 'p', size: 2, resources: { requests: amounts, limits: amounts }, ...fields });
  if (!read.ok) throw new Error(read.problems.join());
  const spec = read.value;
  const counted = pods.filter(({ isMember }) => isMember).length;
  const set = {
    ...{ spec, isUpToDate: true, replicas: counted, isAutoscaled: false, problem: null, isEnding: false },
    seen: { isCurrent: true, pods: counted, ready: pods.filter(({ isReady }) => isReady).length, inService: counted },
  };
  const pool = { spec, status, msg: '', readyCount: 0 };
  return decide({
    pool,
    view: { set, pods },
    nowMs: NOW_MS,
    refusal,
    problem: null,
    mayMake: true,
    mayRepairAtMs: 0,
  });
}

const touched = ({ actions }: ReturnType<typeof plan>) =>
  actions.flatMap(action => ('pod' in action ? [`${action.do} ${action.pod.name}`] : []));

test.each([
  ['new', POOL_STATUS.new, POOL_STATUS.creating],
  ['requested to update', POOL_STATUS.updateRequested, POOL_STATUS.updating],
  ['being created', POOL_STATUS.creating, POOL_STATUS.running],
  ['being updated', POOL_STATUS.updating, POOL_STATUS.running],
] as const)('a pool that is %s changes to the next status', (_name, before, after) => {
  expect(plan({}, [pod('a'), pod('b')], before).report).toMatchObject({ status: after });
});

test('pods with instances count as ready, and pods that have left the pool do not', () => {
  const held = pod('held', { instanceId: 'i' });
  expect(plan({ reuse: true }, [held, pod('a')]).report).toEqual({
    ...{ status: POOL_STATUS.running, msg: 'Running', readyCount: 2 },
  });
  const left = pod('left', { instanceId: 'i', isMember: false });
  expect(plan({}, [left, pod('a')]).report).toMatchObject({ status: POOL_STATUS.updating, readyCount: 1 });
});

describe('a pod within the size that ran an instance and rests for 100 s', () => {
  const used = pod('used', { isUsed: true, restsSinceMs: NOW_MS - 100 * SECOND_MS });

  const rules: readonly (readonly [says: string, fields: object, isReplaced: boolean])[] = [
    ['nothing is configured', {}, false],
    ['the label is 100', { labels: { 'svc-idle-to-recycle': '100' } }, true],
    ['the label is 101', { labels: { 'svc-idle-to-recycle': '101' } }, false],
    [
      'the label is unlimited, whatever reserved is',
      { labels: { 'yr-idle-to-recycle': 'unlimited' }, idle_recycle_time: { reserved: 1 } },
      false,
    ],
    ['reserved is 100', { idle_recycle_time: { reserved: 100 } }, true],
    ['reserved is -1', { idle_recycle_time: { reserved: -1 } }, false],
    ['the label is on a scaling pool', { labels: { 'svc-idle-to-recycle': '1' }, max_size: 5 }, false],
  ];
  test.each(rules)('a used pod that rested for 100 s is replaced or kept when %s', (_says, fields, isReplaced) => {
    const decided = plan({ reuse: true, ...fields }, [used, pod('fresh')]);
    expect(touched(decided)).toEqual(isReplaced ? ['remove used'] : []);
  });
});

test.each([
  ['is not configured, after 60 s', 0, 60],
  ['is 7, after 7 s', 7, 7],
  ['is -1, never', -1, null],
])('an idle pod above the size is retired when scaled %s', (_name, scaled, seconds) => {
  const fields = { size: 1, max_size: 3, idle_recycle_time: { scaled } };
  const after = (restedSeconds: number) => {
    const restsSinceMs = NOW_MS - restedSeconds * SECOND_MS;
    return touched(plan(fields, [pod('a'), pod('b', { restsSinceMs })]));
  };
  if (seconds === null) expect(after(1_000_000)).toEqual([]);
  else expect([after(seconds - 1), after(seconds)]).toEqual([[], ['retire b']]);
});

test.each([
  ['by default after 120 s', {}, 120],
  ['after the configured seconds', { pod_pending_duration_threshold: 5 }, 5],
])('a pod that is pending for too long is reported, %s', (_name, fields, seconds) => {
  const waiting = (forSeconds: number) =>
    plan(fields, [
      pod('a'),
      pod('b', { state: 'pending', isReady: false, createdAtMs: NOW_MS - forSeconds * SECOND_MS }),
    ]);
  expect(waiting(seconds - 1).overdue).toEqual([]);
  const late = waiting(seconds + 1);
  expect(late.overdue.map(({ name }) => name)).toEqual(['b']);
  expect(late.report?.msg).toContain(`pending for more than ${seconds} s: 1 pod`);
});

test('a stored pool that is refused now keeps no pods, and its record says why', () => {
  const pods = [pod('free'), pod('held', { instanceId: 'i' })];
  const first = plan({ image: 'theirs:1' }, pods, POOL_STATUS.running, 'image is not allowed: theirs:1');
  expect(first.actions).toEqual([{ do: 'disband' }]);
  expect(first.isGone).toBe(false);
  expect(first.report).toEqual({ status: POOL_STATUS.failed, msg: 'image is not allowed: theirs:1', readyCount: 2 });
});

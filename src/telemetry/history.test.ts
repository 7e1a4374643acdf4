import { expect, test } from 'vitest';
import { CallCounts, type CountedCalls, NO_CALLS, quantile } from './call-counts.ts';
import { type HistoryAnswer, HistoryOfNodes, type HistoryOfOthers, type Levels, MetricsHistory } from './history.ts';

const HOUR = 3600_000;

function bed(maxFunctions = 8) {
  const state = {
    nowMs: 1_700_000_000_000,
    service: NO_CALLS as CountedCalls,
    functions: new Map<string, CountedCalls>(),
    agents: new Map<string, CountedCalls>(),
    agentLevels: new Map<string, Levels>(),
    level: 1,
  };
  const history = new MetricsHistory(
    {
      service: () => state.service,
      functions: () => state.functions,
      agents: () => state.agents,
      levels: () => ({ level: state.level }),
      agentLevels: () => state.agentLevels,
      tenantOfAgent: id => (state.agentLevels.has(id) ? `tenant of ${id}` : undefined),
    },
    { maxFunctions, now: () => state.nowMs },
  );
  const later = (ms: number) => {
    state.nowMs += ms;
    history.sample();
  };
  return { state, history, later };
}

function calls(count: number, seconds = 0.003, errors = 0): CallCounts {
  const counts = new CallCounts();
  for (let at = 0; at < count; at++) counts.observe(seconds, at < errors);
  return counts;
}

test('a point counts only the calls of its own step', () => {
  const { state, history, later } = bed();
  state.service = calls(5);
  later(0);
  state.service = calls(12, 0.003, 2);
  later(10_000);
  later(10_000);
  const { series, step_seconds } = history.service('1h');
  expect(step_seconds).toBe(10);
  expect(series.calls?.slice(-3)).toEqual([5, 7, 0]);
  expect(series.errors?.slice(-3)).toEqual([0, 2, 0]);
  expect(series.p50_ms?.at(-2)).toBeGreaterThan(2.5);
  expect(series.p50_ms?.at(-2)).toBeLessThan(5);
  expect(series.p50_ms?.at(-1)).toBeNull();
});

test('a step of the day sums its fine steps, and an unfinished step is included', () => {
  const { state, history, later } = bed();
  state.nowMs -= state.nowMs % 300_000;
  later(0);
  for (let at = 1; at <= 30; at++) {
    state.service = calls(at * 2);
    later(10_000);
  }
  const { series } = history.service('24h');
  expect(series.calls?.slice(-2)).toEqual([58, 2]);
});

test('each range ends with the newest step, and has the calls of its own time only', () => {
  const { state, history, later } = bed();
  state.nowMs -= state.nowMs % 600_000;
  later(0);
  for (const [at, ms] of [0, 7 * HOUR, 5 * HOUR, HOUR / 2].entries()) {
    state.service = calls(2 ** (at + 1) - 1);
    later(ms);
  }
  const sums = (['15m', '1h', '6h', '24h'] as const).map(range => {
    const { start, step_seconds: step, series } = history.service(range);
    const values = series.calls ?? [];
    expect(start + values.length * step).toBe((Math.floor(state.nowMs / 1000 / step) + 1) * step);
    return values.reduce<number>((sum, value) => sum + (value ?? 0), 0);
  });
  expect(sums).toEqual([8, 12, 14, 15]);
});

test('MetricsHistory has null for steps without a sample and drops points older than the range', () => {
  const { state, history, later } = bed();
  later(0);
  later(60_000);
  expect(history.service('1h').series.level?.slice(-7)).toEqual([1, null, null, null, null, null, 1]);
  state.level = 2;
  later(25 * HOUR);
  for (const range of ['15m', '1h', '6h', '24h'] as const) {
    const level = history.service(range).series.level ?? [];
    expect(level.filter(value => value !== null)).toEqual([2]);
  }
});

test('MetricsHistory drops the least recently called functions at its limit, and resumes without a jump', () => {
  const { state, history, later } = bed(2);
  for (const [at, key] of ['t/a', 't/b', 't/c'].entries()) {
    state.functions.set(key, calls(10 + at));
    later(10_000);
  }
  expect(history.calls('function', 't/a', '1h').series.calls?.filter(Number.isFinite)).toEqual([]);
  expect(history.calls('function', 't/c', '1h').series.calls?.at(-1)).toBe(12);
  state.functions.set('t/a', calls(11));
  later(10_000);
  expect(history.calls('function', 't/a', '1h').series.calls?.at(-1)).toBe(1);
  expect(history.calls('function', 't/a', '1h').series.calls).toHaveLength(360);
});

test('MetricsHistory drops the history of a deleted agent', () => {
  const { state, history, later } = bed();
  state.agents.set('x', calls(3));
  later(10_000);
  expect(history.calls('agent', 'x', '1h').series.calls?.at(-1)).toBe(3);
  state.agents.delete('x');
  later(10_000);
  expect(history.calls('agent', 'x', '1h').series.calls?.every(value => value === null)).toBe(true);
});

test('the history of an agent without calls has its CPU and memory, and null for calls', () => {
  const { state, history, later } = bed();
  state.agentLevels.set('a', { cpu_millis: 250, memory_mb: 64 });
  later(0);
  const { series } = history.calls('agent', 'a', '1h');
  expect(series.cpu_millis?.at(-1)).toBe(250);
  expect(series.memory_mb?.at(-1)).toBe(64);
  expect(series.calls?.at(-1)).toBeNull();
});

test('the usage of a tenant has the calls of its agents in the last hour and their newest levels', () => {
  const { state, history, later } = bed();
  state.agents.set('a', calls(40, 0.02, 3));
  state.agentLevels.set('a', { cpu_millis: 250, memory_mb: 64 });
  state.agentLevels.set('b', { memory_mb: 1 });
  later(0);
  const usage = () => history.usage('agent', 'tenant of a');
  expect(usage()).toEqual({ a: { calls: 40, errors: 3, p99_ms: expect.any(Number), cpu_millis: 250, memory_mb: 64 } });
  expect(usage().a?.p99_ms).toBeGreaterThan(10);
  later(HOUR / 2);
  state.agents.set('a', calls(50, 0.02, 3));
  later(10_000);
  expect(usage().a?.calls).toBe(50);
  later(HOUR / 2);
  expect(usage().a).toMatchObject({ calls: 10, errors: 0 });
  state.agentLevels.clear();
  later(HOUR);
  expect(usage().a).toEqual({ calls: 0, errors: 0, p99_ms: null, cpu_millis: null, memory_mb: null });
});

test('the usage of a tenant has its functions by name, and no function of another tenant', () => {
  const { state, history, later } = bed();
  state.functions.set('t/0@svc@one', calls(4));
  state.functions.set('t2/0@svc@two', calls(5));
  later(0);
  expect(history.usage('function', 't')).toEqual({ '0@svc@one': expect.objectContaining({ calls: 4, instances: 0 }) });
});

test('onSample notifies a listener of the newest point until the listener unsubscribes', () => {
  const { state, history, later } = bed();
  const heard: unknown[] = [];
  const end = history.onSample(json => heard.push(JSON.parse(json)));
  later(0);
  end();
  later(10_000);
  expect(heard).toEqual([expect.objectContaining({ at: state.nowMs / 1000 - 10, calls: 0, level: 1 })]);
});

test('quantile lies in the bucket of its call, and at the last bound above all buckets', () => {
  expect(quantile(NO_CALLS, 0.5)).toBeNaN();
  expect(quantile(calls(100, 0.02), 0.99)).toBeLessThanOrEqual(0.025);
  expect(quantile(calls(100, 0.02), 0.01)).toBeGreaterThan(0.01);
  expect(quantile(calls(3, 10_000), 0.5)).toBe(600);
});

const of = (series: HistoryAnswer['series'], start = 100): HistoryAnswer => ({ step_seconds: 10, start, series });
const OWN = of({ calls: [1, null, 2], p99_ms: [5, null, 7], agents: [1, 1, null] });

function historyOf(others: Readonly<Record<string, () => unknown>>): HistoryOfNodes {
  const from: HistoryOfOthers = {
    living: () => Object.keys(others).map(id => ({ id, address: id })),
    read: async address => others[address]?.(),
  };
  return new HistoryOfNodes({
    nodeId: 'own',
    history: { service: () => OWN, calls: (kind, key) => (key === '' ? of({}) : of({ [`${kind} ${key}`]: [1] })) },
    others: from,
  });
}

test('read sums the numbers of several replicas and takes the highest percentiles at each time', async () => {
  const history = historyOf({
    late: () => of({ calls: [10, 20, 30], p99_ms: [1, 1, 9], jobs_running: [4, 4, 4] }, 110),
  });
  expect(await history.read(null, '1h', null)).toEqual({
    step_seconds: 10,
    start: 100,
    series: { calls: [1, 10, 22], p99_ms: [5, 1, 7], agents: [1, 1, null], jobs_running: [null, 4, 4] },
    nodes: ['late', 'own'],
    silent_nodes: [],
  });
});

test('read names the replicas that fail or return an invalid history', async () => {
  const history = historyOf({
    away: () => Promise.reject(new Error('away')),
    odd: () => of({ calls: ['1'] as never }),
    older: () => ({}),
  });
  expect(await history.read(null, '1h', null)).toMatchObject({
    series: OWN.series,
    nodes: ['own'],
    silent_nodes: ['away', 'odd', 'older'],
  });
});

test('read returns the history of a single replica when given its id', async () => {
  const history = historyOf({ other: () => of({ calls: [9] }) });
  expect(await history.read(null, '1h', 'own')).toMatchObject({ series: OWN.series, nodes: ['own'] });
  expect(await history.read(null, '1h', 'other')).toMatchObject({ series: { calls: [9] }, nodes: ['other'] });
  expect(await history.read(null, '1h', 'nobody')).toBeNull();
});

test('answer returns the own history for a valid query and nothing for an invalid one', () => {
  const history = historyOf({});
  const ask = (query: string) => history.answer(new URLSearchParams(query))?.series;
  expect(ask('range=1h')).toEqual(OWN.series);
  expect(ask('range=1h&kind=agent&key=x')).toEqual({ 'agent x': [1] });
  for (const query of ['', 'range=1w', 'range=1h&kind=agent', 'range=1h&kind=odd&key=x'])
    expect(ask(query)).toBe(undefined);
});

import { expect, test } from 'vitest';
import type { HistoryAnswer } from './history.ts';
import { HistoryOfNodes, type HistoryOfOthers } from './history-of-nodes.ts';

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

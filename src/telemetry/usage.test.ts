import { expect, test } from 'vitest';
import type { SubjectUsage } from './call-counts.ts';
import { UsageOfNodes } from './usage.ts';

const of = (calls: number, more: Partial<SubjectUsage> = {}): SubjectUsage => {
  return { calls, errors: 0, p99_ms: null, cpu_millis: null, memory_mb: null, ...more };
};

function usageOf(others: Readonly<Record<string, () => unknown>>): UsageOfNodes {
  return new UsageOfNodes({
    nodeId: 'own',
    history: { usage: (kind, tenant) => ({ [`${kind} of ${tenant}`]: of(1, { p99_ms: 5, memory_mb: 10 }) }) },
    others: {
      living: () => Object.keys(others).map(id => ({ id, address: id })),
      read: async address => others[address]?.(),
    },
  });
}

test('the usage on several replicas is added, and the highest percentile counts', async () => {
  const other = of(2, { p99_ms: 4, memory_mb: 30, cpu_millis: 7, instances: 2 });
  const usage = usageOf({ other: () => ({ 'function of t': other, more: of(3) }) });
  expect(await usage.read('function', 't')).toEqual({
    usage: {
      'function of t': { calls: 3, errors: 0, p99_ms: 5, cpu_millis: 7, memory_mb: 40, instances: 2 },
      more: of(3),
    },
    nodes: ['other', 'own'],
    silent_nodes: [],
  });
});

test('a replica that fails or returns an invalid usage is named', async () => {
  const usage = usageOf({ away: () => Promise.reject(new Error('away')), odd: () => ({ a: 1 }), older: () => null });
  expect(await usage.read('agent', 't')).toMatchObject({ nodes: ['own'], silent_nodes: ['away', 'odd', 'older'] });
});

test('answer returns the own usage for a valid query and nothing for an invalid one', () => {
  const answer = (query: string) => usageOf({}).answer(new URLSearchParams(query));
  expect(Object.keys(answer('kind=agent&tenant=t') ?? {})).toEqual(['agent of t']);
  for (const query of ['', 'kind=agent', 'kind=odd&tenant=t']) expect(answer(query)).toBeNull();
});

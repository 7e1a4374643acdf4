import fc from 'fast-check';
import { expect, test } from 'vitest';
import { planMoves } from './shards.ts';

const ids = fc
  .uniqueArray(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g'), { minLength: 1 })
  .map(list => list.sort());
const holdings = fc
  .array(fc.option(fc.constantFrom('a', 'b', 'c', 'd', 'gone')), { minLength: 1, maxLength: 70 })
  .map(owners => owners.map((nodeId, index) => ({ name: `s-${String(index).padStart(2, '0')}`, nodeId })));

test('a plan gives every lease to a worker, and the shares differ by one at most', () => {
  fc.assert(
    fc.property(holdings, ids, (before, workers) => {
      const moves = planMoves(before, workers);
      const counts = new Map<string, number>(workers.map(id => [id, 0]));
      for (const { name, nodeId } of before) {
        const id = moves.get(name) ?? nodeId ?? '';
        expect(counts.has(id)).toBe(true);
        counts.set(id, (counts.get(id) ?? 0) + 1);
      }
      expect(Math.max(...counts.values()) - Math.min(...counts.values())).toBeLessThanOrEqual(1);
    }),
  );
});

test('a plan that was carried out, in whole or in part, needs no additional moves', () => {
  fc.assert(
    fc.property(holdings, ids, fc.nat(70), (before, workers, done) => {
      const moves = [...planMoves(before, workers)];
      const first = new Map(moves.slice(0, done));
      const after = before.map(({ name, nodeId }) => ({ name, nodeId: first.get(name) ?? nodeId }));
      const left = moves.slice(done).length;
      expect(planMoves(after, workers).size).toBeLessThanOrEqual(left);
      if (left === 0) expect(planMoves(after, workers).size).toBe(0);
    }),
  );
});

test('a plan moves as few leases as possible, only from workers that have too many', () => {
  const before = Array.from({ length: 64 }, (_, index) => ({
    name: `s-${String(index).padStart(2, '0')}`,
    nodeId: 'a',
  }));
  const toB = planMoves(before, ['a', 'b']);
  expect(toB.size).toBe(32);
  const shared = before.map(({ name, nodeId }) => ({ name, nodeId: toB.get(name) ?? nodeId }));
  const withC = planMoves(shared, ['a', 'b', 'c']);
  expect([...withC.values()]).toEqual(Array.from({ length: 21 }, () => 'c'));
  // Worker b leaves: the others share its leases and keep their own.
  const gone = shared.map(({ name, nodeId }) => ({ name, nodeId: nodeId === 'b' ? null : nodeId }));
  const afterwards = planMoves(gone, ['a', 'c']);
  expect([...afterwards.values()].filter(id => id === 'c')).toHaveLength(32);
});

test('a plan is empty when no worker exists', () => {
  expect(planMoves([{ name: 's', nodeId: null }], []).size).toBe(0);
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createClusters, readReservation, readReservationBase, updateClusters } from './reservation.ts';

const BODY = { funcName: '0@demo@hello', version: 'latest', instanceLabel: 'gpu', instanceConfigInfos: [{}] };
const read = (changes: Record<string, unknown>) => readReservation({ ...BODY, ...changes }, 'cluster001');
const clusters = (...infos: unknown[]) => read({ instanceConfigInfos: infos });

test('a reservation without a cluster uses the default one, and the version latest means $latest', () => {
  expect(read({})).toEqual({
    ok: true,
    value: {
      funcName: '0@demo@hello',
      version: '$latest',
      instanceLabel: 'gpu',
      clusters: [{ clusterId: 'cluster001', minInstance: undefined, maxInstance: undefined }],
    },
  });
});

test('minimum and maximum are read from integers and decimal strings', () => {
  expect(clusters({ minInstance: '3', maxInstance: 4 })).toMatchObject({
    ok: true,
    value: { clusters: [{ minInstance: 3, maxInstance: 4 }] },
  });
});

test.each<[string, Record<string, unknown>, string]>([
  ['no funcName', { funcName: undefined }, 'funcName is required'],
  ['no version', { version: '' }, 'version is required'],
  ['no label', { instanceLabel: undefined }, 'instanceLabel is required'],
  ['an empty label', { instanceLabel: '' }, 'instanceLabel is required'],
  ['a label with a space', { instanceLabel: 'a b' }, 'instanceLabel must be letters, digits'],
  ['a label that ends with "-"', { instanceLabel: 'a-' }, 'instanceLabel must be letters, digits'],
  ['a label of 64 characters', { instanceLabel: 'a'.repeat(64) }, 'instanceLabel must have at most 63 characters'],
  ['no clusters', { instanceConfigInfos: undefined }, 'instanceConfigInfos is required'],
  ['clusters that are not an array', { instanceConfigInfos: {} }, 'instanceConfigInfos must be an array'],
  ['an empty list of clusters', { instanceConfigInfos: [] }, 'instanceConfigInfos must not be empty'],
  ['a cluster that is not an object', { instanceConfigInfos: [1] }, 'instanceConfigInfos[0] must be an object'],
  [
    'a repeated cluster',
    { instanceConfigInfos: [{ clusterId: 'a' }, { clusterId: 'a' }] },
    'instanceConfigInfos[1].clusterId repeats "a"',
  ],
  [
    'the default cluster twice, once by its name',
    { instanceConfigInfos: [{}, { clusterId: 'cluster001' }] },
    'repeats "cluster001"',
  ],
  [
    'a clusterId of 65 characters',
    { instanceConfigInfos: [{ clusterId: 'a'.repeat(65) }] },
    'clusterId must have at most 64',
  ],
  ['a minimum of 1001', { instanceConfigInfos: [{ minInstance: 1001 }] }, 'minInstance must be between 0 and 1000'],
  ['a negative minimum', { instanceConfigInfos: [{ minInstance: '-1' }] }, 'minInstance must be between 0 and 1000'],
  [
    'a maximum below the minimum',
    { instanceConfigInfos: [{ minInstance: 2, maxInstance: 1 }] },
    'minInstance must not be larger than maxInstance: 2 > 1',
  ],
])('a reservation with %s is refused', (_, changes, problem) => {
  const result = read(changes);
  expect(result.ok ? '' : result.problems.join('; ')).toContain(problem);
});

test('a query or a delete requires funcName and version, and an absent label means all labels', () => {
  expect(readReservationBase({ funcName: 'f', version: 'v1' })).toEqual({
    ok: true,
    value: { funcName: 'f', version: 'v1', instanceLabel: '' },
  });
  expect(readReservationBase({})).toEqual({ ok: false, problems: ['funcName is required', 'version is required'] });
});

test("a create without minimum reserves 0, and its maximum is at least the minimum and the function's own", () => {
  const request = (minInstance?: number, maxInstance?: number) => [{ clusterId: 'a', minInstance, maxInstance }];
  expect(createClusters(request(), 100)).toEqual([{ clusterId: 'a', minInstance: 0, maxInstance: 100 }]);
  expect(createClusters(request(200), 100)).toEqual([{ clusterId: 'a', minInstance: 200, maxInstance: 200 }]);
  expect(createClusters(request(undefined, 5), 100)).toEqual([{ clusterId: 'a', minInstance: 0, maxInstance: 5 }]);
});

test('an update keeps the numbers and the clusters that are not sent', () => {
  const stored = [
    { clusterId: 'a', minInstance: 1, maxInstance: 5 },
    { clusterId: 'b', minInstance: 2, maxInstance: 6 },
  ];
  expect(updateClusters(stored, [{ clusterId: 'b', minInstance: 3, maxInstance: undefined }], 100)).toEqual({
    ok: true,
    value: [stored[0], { clusterId: 'b', minInstance: 3, maxInstance: 6 }],
  });
  expect(updateClusters(stored, [{ clusterId: 'c', minInstance: undefined, maxInstance: 7 }], 100)).toEqual({
    ok: true,
    value: [...stored, { clusterId: 'c', minInstance: 0, maxInstance: 7 }],
  });
});

test('an update is refused when its minimum is above the stored maximum', () => {
  const stored = [{ clusterId: 'a', minInstance: 1, maxInstance: 5 }];
  expect(updateClusters(stored, [{ clusterId: 'a', minInstance: 6, maxInstance: undefined }], 100)).toMatchObject({
    ok: false,
  });
});

test('an accepted update lists each cluster once, with a minimum of at most its maximum', () => {
  const count = fc.integer({ min: 0, max: 10 });
  const id = fc.constantFrom('a', 'b', 'c');
  const stored = fc.uniqueArray(
    fc
      .tuple(id, count, count)
      .map(([clusterId, x, y]) => ({ clusterId, minInstance: Math.min(x, y), maxInstance: Math.max(x, y) })),
    { selector: cluster => cluster.clusterId },
  );
  const requested = fc.uniqueArray(
    fc.record({
      clusterId: id,
      minInstance: fc.option(count, { nil: undefined }),
      maxInstance: fc.option(count, { nil: undefined }),
    }),
    { selector: cluster => cluster.clusterId },
  );
  fc.assert(
    fc.property(stored, requested, (before, changes) => {
      const result = updateClusters(before, changes, 10);
      if (!result.ok) return;
      const ids = result.value.map(cluster => cluster.clusterId);
      expect(new Set(ids)).toEqual(new Set([...before, ...changes].map(cluster => cluster.clusterId)));
      expect(ids).toHaveLength(new Set(ids).size);
      for (const cluster of result.value) expect(cluster.minInstance).toBeLessThanOrEqual(cluster.maxInstance);
    }),
  );
});

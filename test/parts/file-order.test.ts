import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { byGroup, inOrder, LONGEST } from './file-order.ts';

const order = (...paths: string[]) => inOrder(paths, path => path);

test('inOrder puts slow files first regardless of size and keeps the order of the others', () => {
  const [first = '', second = ''] = LONGEST;
  expect(order('src/a.test.ts', second, 'src/b.test.ts', first)).toEqual([
    first,
    second,
    'src/a.test.ts',
    'src/b.test.ts',
  ]);
});

test('inOrder separates files that use the same part of the machine', () => {
  const others = Array.from({ length: 30 }, (_, index) => `src/${index}.test.ts`);
  const crowded = ['test/pools/life.test.ts', 'test/sandbox/kubernetes-pod.test.ts', 'test/kubernetes/chart.test.ts'];
  const found = order(...crowded, ...others);
  expect(found.toSorted()).toEqual([...crowded, ...others].toSorted());
  const places = crowded.map(path => found.indexOf(path));
  expect(places).toEqual([0, 8, 16]);
});

test('LONGEST names only files that exist', () => {
  expect(LONGEST.filter(path => !existsSync(path))).toEqual([]);
});

test('byGroup keeps groups together and joins files that share a worker across groups', () => {
  const files = [
    'test/jobs/flow.test.ts',
    'src/storage/a.test.ts',
    'src/jobs/a.test.ts',
    'test/suites/flow.test.ts',
    'src/storage/b.test.ts',
  ];
  const found = byGroup(
    files,
    path => path,
    path => path.startsWith('src/'),
  );
  expect(found).toEqual([
    'test/jobs/flow.test.ts',
    'src/jobs/a.test.ts',
    'src/storage/a.test.ts',
    'src/storage/b.test.ts',
    'test/suites/flow.test.ts',
  ]);
});

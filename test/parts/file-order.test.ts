import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { inOrder, LONGEST } from './file-order.ts';

const order = (...paths: string[]) => inOrder(paths, path => path);

test('files that take long begin first, however small they are; all others stay in their order', () => {
  const [first = '', second = ''] = LONGEST;
  expect(order('src/a.test.ts', second, 'src/b.test.ts', first)).toEqual([
    first,
    second,
    'src/a.test.ts',
    'src/b.test.ts',
  ]);
});

test('files that use the same part of the machine stand apart', () => {
  const others = Array.from({ length: 30 }, (_, index) => `src/${index}.test.ts`);
  const crowded = ['test/pools/life.test.ts', 'test/sandbox/kubernetes-pod.test.ts', 'test/kubernetes/chart.test.ts'];
  const found = order(...crowded, ...others);
  expect(found.toSorted()).toEqual([...crowded, ...others].toSorted());
  const places = crowded.map(path => found.indexOf(path));
  expect(places).toEqual([0, 8, 16]);
});

test('the files that are known to take long are there', () => {
  expect(LONGEST.filter(path => !existsSync(path))).toEqual([]);
});

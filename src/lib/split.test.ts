import { expect, test } from 'vitest';
import { chunksOf, groupsBy } from './split.ts';

test('chunksOf keeps the order and cuts after each full chunk', () => {
  expect(chunksOf([1, 2, 3, 4, 5], 2)).toEqual([[1, 2], [3, 4], [5]]);
  expect(chunksOf([1, 2], 2)).toEqual([[1, 2]]);
  expect(chunksOf([], 2)).toEqual([]);
});

test('groupsBy keeps the order of keys and of items', () => {
  const groups = groupsBy(['b1', 'a1', 'b2'], item => item[0]);
  expect([...groups]).toEqual([
    ['b', ['b1', 'b2']],
    ['a', ['a1']],
  ]);
});

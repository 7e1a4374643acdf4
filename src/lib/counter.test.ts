import { expect, test } from 'vitest';
import { Counter } from './counter.ts';

test('Counter counts each key and drops a key whose count falls to 0', () => {
  const counter = new Counter();
  expect(counter.add('a')).toBe(1);
  expect(counter.add('a', 2)).toBe(3);
  expect(counter.get('b')).toBe(0);
  expect(counter.add('a', -3)).toBe(0);
  expect(counter.add('a', -1)).toBe(0);
  expect(counter.add('a')).toBe(1);
  counter.clear();
  expect(counter.get('a')).toBe(0);
});

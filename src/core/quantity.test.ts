import { expect, test } from 'vitest';
import { parseQuantity } from './quantity.ts';

test.each([
  ['cpu', '500m', 0.5],
  ['memory', '512Mi', 512 * 2 ** 20],
  ['memory', '1Gi', 2 ** 30],
  ['memory', '1.5Gi', 1.5 * 2 ** 30],
  ['nvidia.com/gpu', '2', 2],
  ['ephemeral-storage', '10Gi', 10 * 2 ** 30],
])('%s %s is a quantity', (resource, text, amount) => {
  expect(parseQuantity(resource, text)).toBeCloseTo(amount);
});

test.each([
  ['cpu', '1'],
  ['cpu', '0.5m'],
  ['cpu', '-5m'],
  ['cpu', 'm'],
  ['cpu', '500M'],
  ['memory', '512'],
  ['memory', '512M'],
  ['memory', '512mi'],
  ['memory', ''],
  ['memory', ' 1Gi'],
  ['nvidia.com/gpu', 'two'],
])('%s %j is not a quantity', (resource, text) => {
  expect(parseQuantity(resource, text)).toBeNull();
});

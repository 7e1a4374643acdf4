import { expect, test } from 'vitest';
import { isLabelKey, isLabelValue, isOwnLabel, parseQuantity } from './kubernetes-formats.ts';

test.each(['a', 'app', 'app.kubernetes.io/name', 'A_b-c.d', 'x'.repeat(63), `${'a'.repeat(253)}/x`])(
  'the text %s is a label key',
  key => {
    expect(isLabelKey(key)).toBe(true);
  },
);

test.each([
  '',
  '-a',
  'a-',
  'a b',
  'x'.repeat(64),
  '/x',
  'a/',
  'a/b/c',
  'UPPER.case/x',
  '-a.b/x',
  `${'a'.repeat(254)}/x`,
])('the text %j is not a label key', key => {
  expect(isLabelKey(key)).toBe(false);
});

test('a label value has at most 63 characters and may be empty', () => {
  for (const good of ['', 'a', 'A.b_c-d', 'x'.repeat(63)]) expect(isLabelValue(good)).toBe(true);
  for (const bad of ['-a', 'a-', 'a b', 'a/b', 'x'.repeat(64)]) expect(isLabelValue(bad)).toBe(false);
});

test('labels below rookery.io belong to the platform', () => {
  for (const own of ['rookery.io/pool', 'a.rookery.io/x']) expect(isOwnLabel(own)).toBe(true);
  for (const free of ['rookery', 'rookery.io', 'notrookery.io/x', 'rookery.io.example/x'])
    expect(isOwnLabel(free)).toBe(false);
});

test.each([
  ['cpu', '500m', 0.5],
  ['memory', '512Mi', 512 * 2 ** 20],
  ['memory', '1Gi', 2 ** 30],
  ['memory', '1.5Gi', 1.5 * 2 ** 30],
  ['nvidia.com/gpu', '2', 2],
  ['ephemeral-storage', '10Gi', 10 * 2 ** 30],
])('the %s %s is a quantity', (resource, text, amount) => {
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
])('the %s %j is not a quantity', (resource, text) => {
  expect(parseQuantity(resource, text)).toBeNull();
});

import { expect, test } from 'vitest';
import { lockfileProblems, problemsOf } from './lockfile.ts';

const INTEGRITY = 'sha512-x';

test('the lockfile of this project has no problem', () => {
  expect(lockfileProblems()).toBe('');
});

test.each([
  ['a package of the product', 'node_modules/some', {}],
  ['the binary of a tool for another platform', 'node_modules/some-win32-x64', { dev: true, optional: true }],
])('problemsOf reports a missing integrity: %s', (_name, path, locked) => {
  expect(problemsOf({ packages: { '': {}, [path]: locked } })).toEqual([
    expect.stringMatching(/^node_modules\/\S+ has no integrity/),
  ]);
});

test('problemsOf accepts a link without integrity', () => {
  expect(problemsOf({ packages: { 'node_modules/a': { link: true } } })).toEqual([]);
});

test('problemsOf reports a registry, and a missing package of another platform', () => {
  const packages = {
    'node_modules/a': { resolved: 'https://registry.example.com/a.tgz', integrity: INTEGRITY },
    'node_modules/b': { integrity: INTEGRITY, optionalDependencies: { 'b-linux': '1.0.0' } },
  };
  expect(problemsOf({ packages })).toHaveLength(2);
});

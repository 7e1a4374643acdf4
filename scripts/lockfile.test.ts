import { expect, test } from 'vitest';
import { lockfileProblems, problemsOf } from './lockfile.ts';

const INTEGRITY = 'sha512-x';
const FOREIGN = { dev: true, optional: true, os: ['win32'], cpu: ['x64'] };

test('the lockfile of this project has no problem', () => {
  expect(lockfileProblems()).toBe('');
});

test.each([
  ['a package of the product', {}],
  ['an optional one for another platform that is part of the product', { ...FOREIGN, dev: false }],
  ['a development tool that runs everywhere', { dev: true, optional: true }],
  ['one that every developer installs', { dev: true, os: ['win32'] }],
  ['the binary of a tool that continuous integration runs', { ...FOREIGN, os: ['linux'], libc: ['glibc'] }],
  ['the same where the library does not matter', { ...FOREIGN, os: ['linux'] }],
])('without integrity is a problem: %s', (_name, locked) => {
  const path = 'node_modules/some';
  expect(problemsOf({ packages: { '': {}, [path]: locked } })).toEqual([
    expect.stringMatching(/^node_modules\/some has no integrity/),
  ]);
  expect(problemsOf({ packages: { '': {}, [path]: { ...locked, integrity: INTEGRITY } } })).toEqual([]);
});

test('links, and tools of a platform that the registry did not have, need none', () => {
  expect(problemsOf({ packages: { 'node_modules/a': { link: true }, 'node_modules/b': FOREIGN } })).toEqual([]);
});

test('a registry, and a platform that was left out, are problems', () => {
  const packages = {
    'node_modules/a': { resolved: 'https://registry.example.com/a.tgz', integrity: INTEGRITY },
    'node_modules/b': { integrity: INTEGRITY, optionalDependencies: { 'b-linux': '1.0.0' } },
  };
  expect(problemsOf({ packages })).toHaveLength(2);
});

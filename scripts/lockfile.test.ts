import { expect, test } from 'vitest';
import { lockfileProblems, problemsOf } from './lockfile.ts';

const INTEGRITY = 'sha512-x';
const OF_A_TOOL = { dev: true, optional: true };
const LISTED = 'node_modules/@biomejs/cli-win32-x64';

test('the lockfile of this project has no problem', () => {
  expect(lockfileProblems()).toBe('');
});

test.each([
  ['a package of the product', 'node_modules/some', {}],
  ['the binary of a tool for another platform that is not on the list', 'node_modules/some-win32-x64', OF_A_TOOL],
  ['another version of one that is, inside of another package', `node_modules/some/${LISTED}`, OF_A_TOOL],
  ['one of the list that is part of the product', LISTED, { optional: true }],
  ['one of the list that every developer installs', LISTED, { dev: true }],
])('without integrity is a problem: %s', (_name, path, locked) => {
  expect(problemsOf({ packages: { '': {}, [path]: locked } })).toEqual([
    expect.stringMatching(/^node_modules\/\S+ has no integrity/),
  ]);
});

test('links, and binaries of tools that the registry did not have, need none', () => {
  expect(problemsOf({ packages: { 'node_modules/a': { link: true }, [LISTED]: OF_A_TOOL } })).toEqual([]);
});

test('what has its integrity must not stay on the list', () => {
  expect(problemsOf({ packages: { [LISTED]: { ...OF_A_TOOL, integrity: INTEGRITY } } })).toEqual([
    expect.stringMatching(/has its integrity now/),
  ]);
});

test('a registry, and a platform that was left out, are problems', () => {
  const packages = {
    'node_modules/a': { resolved: 'https://registry.example.com/a.tgz', integrity: INTEGRITY },
    'node_modules/b': { integrity: INTEGRITY, optionalDependencies: { 'b-linux': '1.0.0' } },
  };
  expect(problemsOf({ packages })).toHaveLength(2);
});

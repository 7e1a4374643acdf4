import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { filesOutside, inScope, isInScope, LEFT_FOR_FULL } from './scope.ts';

const ROOT = join(import.meta.dirname, '..');
const LEFT = Object.values(LEFT_FOR_FULL).flat();

test('LEFT_FOR_FULL names only existing files, each once', () => {
  expect(LEFT.filter(file => !existsSync(join(ROOT, file)))).toEqual([]);
  expect(new Set(LEFT).size).toBe(LEFT.length);
});

test('the quick and rest scopes divide all files between them, and the full scope has all', () => {
  expect(filesOutside('full', ROOT)).toEqual([]);
  const [quick, rest] = [filesOutside('rest', ROOT), filesOutside('quick', ROOT)];
  expect(quick.filter(file => rest.includes(file))).toEqual([]);
  expect([...rest].sort()).toEqual([...LEFT].sort());
  expect(isInScope('test/scope.test.ts', 'quick')).toBe(true);
  expect(isInScope('test/scope.test.ts', 'rest')).toBe(false);
});

test('the quick scope covers the ends of a matrix axis, and rest covers the middle', () => {
  const axis = ['3.6', '3.8', '3.11', '3.13'];
  expect(inScope(axis, 'quick')).toEqual(['3.6', '3.13']);
  expect(inScope(axis, 'rest')).toEqual(['3.8', '3.11']);
  expect(inScope(axis, 'full')).toEqual(axis);
  expect(inScope(['3.11'], 'quick')).toEqual(['3.11']);
});

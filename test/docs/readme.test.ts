import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';

const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const MAX_LINES = 120;

test('README.md has at most 120 lines', () => {
  expect(README.trimEnd().split('\n').length).toBeLessThanOrEqual(MAX_LINES);
});

test('README.md shows numbers of the current bench', () => {
  const results = readFileSync(join(ROOT, 'bench/RESULTS.md'), 'utf8');
  const numbers = README.slice(README.indexOf('## Numbers'), README.indexOf('## How it works'))
    .split('\n')
    .filter(line => line.startsWith('|'))
    .flatMap(line => [...line.matchAll(/[\d.]+(?:\/s| ms| s| MB)/g)].map(([number]) => number));
  expect(numbers.length).toBeGreaterThan(6);
  expect(numbers.filter(number => !results.includes(number))).toEqual([]);
});

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readClaims, wordsOf } from '../../scripts/claims.ts';

const ROOT = join(import.meta.dirname, '../..');
const page = readFileSync(join(ROOT, 'docs/security-evidence.md'), 'utf8');
const lines = page.split('\n');
const claims = readClaims(page);

test('every table of claims names tests', () => {
  const tables = lines.filter(line => /^\| Claim \| Test \|$/.test(line));
  expect(tables.length).toBeGreaterThan(3);
  const tests = lines
    .slice(lines.indexOf('| Claim | Test |'))
    .filter(line => line.startsWith('| '))
    .join('<br>');
  const headings = tables.length;
  expect(claims).toHaveLength(tests.split('<br>').length - headings);
});

test.each(claims)('the page names one test of $file that begins with "$title"', ({ file, title }) => {
  expect(existsSync(join(ROOT, file)), file).toBe(true);
  const source = readFileSync(join(ROOT, file), 'utf8');
  const words = wordsOf(title);
  expect(source).toContain(words);
  if (words !== title) expect(source.split(words)).toHaveLength(2);
});

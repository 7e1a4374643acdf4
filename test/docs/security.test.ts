import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readClaims } from '../../scripts/claims.ts';

const ROOT = join(import.meta.dirname, '../..');
const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8');
const lines = page.split('\n');
const claims = readClaims(page);

test('every table of claims names tests', () => {
  const tables = lines.filter(line => /^\| Claim \| Test \|$/.test(line));
  expect(tables.length).toBeGreaterThan(3);
  const rows = lines.slice(lines.indexOf('| Claim | Test |')).filter(line => / `[^`]+\.ts`: /.test(line));
  expect(claims).toHaveLength(rows.length);
});

test.each(claims)('$claim', ({ file, title }) => {
  expect(existsSync(join(ROOT, file)), file).toBe(true);
  expect(readFileSync(join(ROOT, file), 'utf8')).toContain(title);
});

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
/** The last cell of a table's line: the file of a test and words of its title. */
const TEST_CELL = /\| `([^`]+\.test\.ts|test\/suites\/[^`]+\.ts)`: (.+?) \|$/;

const lines = readFileSync(join(ROOT, 'docs/security.md'), 'utf8').split('\n');
const claims = lines.flatMap(line => {
  const found = TEST_CELL.exec(line);
  return found === null
    ? []
    : [{ claim: line.split('|')[1]?.trim(), file: found[1] as string, title: found[2] as string }];
});

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

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseFault } from './parse-check.ts';

test.each([
  ['app.py', 'def handle(event, context):\n    return event\n', null],
  ['app.py', 'def handle(:\n', expect.stringMatching(/^SyntaxError: /)],
  ['app.mjs', 'export const handle = event => event;\n', null],
  ['app.js', 'const = 1;\n', expect.stringMatching(/^SyntaxError: /)],
  ['data.txt', 'def handle(:\n', null],
])('parseFault of %s with %j returns %j', async (name, content, expected) => {
  const dir = mkdtempSync(join(tmpdir(), 'rookery-parse-'));
  try {
    writeFileSync(join(dir, name), content);
    expect(await parseFault(join(dir, name))).toEqual(expected);
    expect(await parseFault(join(dir, 'gone.py'))).toBeNull();
  } finally {
    rmSync(dir, { recursive: true });
  }
});

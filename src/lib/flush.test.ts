import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { flushDirectory, flushFileSystem } from './file-writes.ts';

test.each([flushDirectory, flushFileSystem])('%o flushes a directory and fails for a missing one', async flush => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-flush-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  mkdirSync(join(directory, '-f'));
  writeFileSync(join(directory, '-f', 'file'), 'content');
  await flush(join(directory, '-f'));
  await expect(flush(join(directory, 'none'))).rejects.toThrow();
});

import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { fileProblem } from './file-problem.ts';

test.each([
  ['a missing file', join(tmpdir(), 'rookery-no-such-file'), 'it does not exist'],
  ['a directory', tmpdir(), 'it is a directory'],
  ['a path below a file', join(import.meta.filename, 'x'), 'a part of its path is not a directory'],
])('fileProblem describes %s without Node’s code', async (_, path, problem) => {
  const error = await readFile(path).catch((error: unknown) => error);
  expect(fileProblem(error)).toBe(problem);
});

test('fileProblem returns the message of other errors', () => {
  expect(fileProblem(new Error('the cable is cut'))).toBe('the cable is cut');
});

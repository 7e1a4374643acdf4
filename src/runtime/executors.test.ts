import { expect, test } from 'vitest';
import { commandOf, executorName } from './executors.ts';

test.each([6, 7, 8, 9, 10, 11, 12, 13, 14])('python3.%d runs on exactly that interpreter version', minor => {
  expect(commandOf(`python3.${minor}`)).toEqual({ kind: 'python', version: `3.${minor}` });
});

test.each([
  ['python3.6', 'Python3.x'],
  ['go', 'Go1.x'],
  ['http', 'Go1.x'],
  ['custom image', 'Go1.x'],
  ['java17', 'Java'],
  ['posix-custom-runtime', 'PosixCustom'],
  ['python3.5', 'PosixCustom'],
  ['python3.15', 'PosixCustom'],
  ['python3', 'PosixCustom'],
  ['java9', 'PosixCustom'],
  ['anything else', 'PosixCustom'],
])('the runtime value "%s" maps to the executor %s', (runtime, executor) => {
  expect(executorName(runtime)).toBe(executor);
});

test.each(['go', 'java21', 'posix-custom-runtime', 'cobol'])(
  'an executor that is not installed is an invalid function: %s',
  runtime => {
    expect(() => commandOf(runtime)).toThrow(`invalid function: runtime ${runtime} is not available: `);
  },
);

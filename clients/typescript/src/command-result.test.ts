import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { CommandFailed, CommandResult } from './command-result.ts';
import { RookeryError } from './error.ts';
import { ExecutionFailed } from './failures.ts';

const result = (change: Partial<CommandResult> = {}) =>
  new CommandResult({ returncode: 0, stdout: 'out\n', stderr: '', truncated: false, timed_out: false, ...change });

test('check returns the result of a command that succeeded', () => {
  const done = result();
  expect(done.check()).toBe(done);
  expect(JSON.parse(JSON.stringify(done))).toEqual({
    returncode: 0,
    stdout: 'out\n',
    stderr: '',
    truncated: false,
    timed_out: false,
  });
  expect(inspect(done)).toContain("CommandResult {\n  returncode: 0,\n  stdout: 'out\\n'");
});

test.each([
  [{ returncode: 3, stderr: 'no such file\n' }, 'the command ended with exit code 3: no such file'],
  [{ returncode: 1 }, 'the command ended with exit code 1'],
  [{ returncode: -1, timed_out: true, stderr: 'slow' }, 'the time limit ended the command: slow'],
  [
    { returncode: 2, stderr: `first${'x'.repeat(3000)}last` },
    `the command ended with exit code 2: …${'x'.repeat(1996)}last`,
  ],
])('check of %j fails with the exit code and the end of the error output', (change, message) => {
  const failed = result(change);
  const error = (() => {
    try {
      return failed.check();
    } catch (error) {
      return error;
    }
  })() as CommandFailed;
  expect(error).toBeInstanceOf(CommandFailed);
  expect(error).toBeInstanceOf(ExecutionFailed);
  expect(error).toBeInstanceOf(RookeryError);
  expect(error.message).toBe(message);
  expect([error.returncode, error.stderr, error.result]).toEqual([failed.returncode, failed.stderr, failed]);
});

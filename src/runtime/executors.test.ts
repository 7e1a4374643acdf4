import { expect, test } from 'vitest';
import { type ExecutorSubject, executionOf, executorName } from './executors.ts';

function subject(changes: Partial<ExecutorSubject>): ExecutorSubject {
  return { runtime: 'go', codePath: '/code', handler: 'a.b', memoryMb: 512, rootfs: { type: 'host' }, ...changes };
}

test.each([6, 7, 8, 9, 10, 11, 12, 13, 14])('python3.%d runs on exactly that interpreter version', minor => {
  const { command } = executionOf(subject({ runtime: `python3.${minor}`, codePath: '/code', handler: 'a.b' }));
  expect(command).toEqual({ kind: 'python', version: `3.${minor}` });
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

test.each([
  ['go', { makesSocket: false }],
  ['posix-custom-runtime', { makesSocket: true, orServesHttp: true }],
  ['cobol', { makesSocket: true, orServesHttp: true }],
])('%s executes <codePath>/<handler>; how it may be reached: %j', (runtime, ways) => {
  expect(executionOf(subject({ runtime, codePath: '/code/', handler: 'bin/app' })).command).toEqual({
    kind: 'exec',
    argv: ['/code/bin/app'],
    deployDir: '/code/',
    ...ways,
  });
});

test.each(['go', 'posix-custom-runtime'])('%s without a handler has no program to execute', runtime => {
  expect(executionOf(subject({ runtime, codePath: '/code', handler: '' })).command).toEqual({ kind: 'exec', argv: [] });
});

test.each(['custom image'])('an executor that is not installed is an invalid function: %s', runtime => {
  expect(() => executionOf(subject({ runtime, codePath: '/code', handler: 'a.b' }))).toThrow(
    `invalid function: runtime ${runtime} is not available: `,
  );
});

test('http executes <codePath>/bootstrap, whatever the handler', () => {
  expect(executionOf(subject({ runtime: 'http', codePath: '/code/', handler: '' })).command).toEqual({
    kind: 'http',
    argv: ['/code/bootstrap'],
    deployDir: '/code/',
  });
});

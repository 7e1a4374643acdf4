import { expect, test } from 'vitest';
import { LIMITS } from '../core/limits.ts';
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
  ['nodejs', 'Nodejs'],
  ['nodejs22', 'Nodejs'],
  ['nodejs18', 'PosixCustom'],
  ['java9', 'PosixCustom'],
  ['anything else', 'PosixCustom'],
])('the runtime value "%s" maps to the executor %s', (runtime, executor) => {
  expect(executorName(runtime)).toBe(executor);
});

test.each([
  ['go', { makesSocket: false }],
  ['posix-custom-runtime', { makesSocket: true, orServesHttp: true }],
  ['cobol', { makesSocket: true, orServesHttp: true }],
])('the runtime %s executes <codePath>/<handler> and can be reached with %j', (runtime, ways) => {
  expect(executionOf(subject({ runtime, codePath: '/code/', handler: 'bin/app' })).command).toEqual({
    kind: 'exec',
    argv: ['/code/bin/app'],
    deployDir: '/code/',
    ...ways,
  });
});

test.each(['go', 'posix-custom-runtime'])('the runtime %s without a handler has no program to execute', runtime => {
  expect(executionOf(subject({ runtime, codePath: '/code', handler: '' })).command).toEqual({ kind: 'exec', argv: [] });
});

test.each(['custom image'])('executionOf rejects the runtime %s because its executor is missing', runtime => {
  expect(() => executionOf(subject({ runtime, codePath: '/code', handler: 'a.b' }))).toThrow(
    `invalid function: runtime ${runtime} is not available: `,
  );
});

test('the runtime http executes <codePath>/bootstrap for any handler', () => {
  expect(executionOf(subject({ runtime: 'http', codePath: '/code/', handler: '' })).command).toEqual({
    kind: 'http',
    argv: ['/code/bootstrap'],
    deployDir: '/code/',
  });
});

test('the runtime nodejs runs the newest host Node with the Rookery runtime and a heap within the memory limit', () => {
  const { command, mounts } = executionOf(subject({ runtime: 'nodejs', memoryMb: 500 }), { PATH: '/nowhere' });
  expect(command).toEqual({
    kind: 'exec',
    canWait: false,
    argv: [
      expect.stringMatching(/^\/.*node$/),
      '--max-old-space-size=300',
      expect.stringMatching(/runtimes\/nodejs\/lib\/main\.js$/),
    ],
  });
  // Only a program with the default memory size may start before an instance is requested.
  const usual = executionOf(subject({ runtime: 'nodejs', memoryMb: LIMITS.memoryMb.default })).command;
  expect(usual).toMatchObject({ canWait: true });
  const [program, , main] = 'argv' in command ? command.argv : [];
  // A read-only mount provides each part of the program at the same path inside the sandbox.
  for (const path of [program, main].filter(path => !path?.startsWith('/usr/'))) {
    expect(
      mounts.some(({ source, target, readonly }) => path?.startsWith(source) && source === target && readonly),
    ).toBe(true);
  }
});

test.each([
  ['nodejs22', '22'],
  ['nodejs', ''],
])('the runtime %s in an image runs the node of the image PATH in version "%s"', (runtime, version) => {
  const { command } = executionOf(subject({ runtime, rootfs: { type: 'image' } }));
  expect(command).toMatchObject({ makesSocket: true, imageProgram: { name: 'node', version } });
  expect('argv' in command && command.argv[0]).toBe('node');
});

test('executionOf rejects nodejs24 when the host has no Node.js 24', () => {
  const environment = { PATH: '/nowhere', NODE_HOME_24: '/nowhere' };
  const run = () => executionOf(subject({ runtime: 'nodejs24' }), environment);
  if (process.versions.node.startsWith('24.')) expect(run).not.toThrow();
  else expect(run).toThrow('invalid function: runtime nodejs24 is not available: no Node.js 24 was found: ');
});

import { expect, test } from 'vitest';
import { toExit } from './container-exits.ts';
import { makeHandle, readHandle } from './sandbox-directory.ts';

const state = { Running: false, OOMKilled: false, ExitCode: 0, FinishedAt: '2026-11-20T10:00:00.5Z' };

test.each([
  ['an exit code', { ExitCode: 3 }, { code: 3, signal: null, oomKilled: false }],
  ['a signal', { ExitCode: 139 }, { code: null, signal: 'SIGSEGV', oomKilled: false }],
  ['out of memory', { ExitCode: 137, OOMKilled: true }, { code: null, signal: 'SIGKILL', oomKilled: true }],
  [
    'a child that exceeded the memory, not the code itself',
    { ExitCode: 1, OOMKilled: true },
    { code: 1, oomKilled: false },
  ],
  ['an exit code without a signal', { ExitCode: 255 }, { code: 255, signal: null }],
  ['a container that was never started', { Status: 'created' }, { code: null, signal: null }],
])('toExit reports how a container ended: %s', (_title, changes, expected) => {
  expect(toExit({ ...state, ...changes })).toMatchObject(expected);
});

test('toExit takes the end time of the daemon, or the current time when the daemon reports none', () => {
  expect(toExit(state).atMs).toBe(Date.parse('2026-11-20T10:00:00.500Z'));
  const before = Date.now();
  expect(toExit({ ...state, FinishedAt: '0001-01-01T00:00:00Z' }).atMs).toBeGreaterThanOrEqual(before);
});

test('readHandle reads a stored handle and refuses a handle of another driver', () => {
  const handle = makeHandle('/data/run/docker', 'id', 'abc');
  const stored = JSON.parse(JSON.stringify(handle)) as typeof handle;
  expect(readHandle(stored)).toEqual({
    ...{ instanceId: 'id', container: 'abc', directory: '/data/run/docker/id', hasAccounts: false },
  });
  expect(() => readHandle({ ...handle, driver: 'process' })).toThrow(/expected a handle of the docker driver/);
});

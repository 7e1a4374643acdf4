import { expect, test } from 'vitest';
import { failedPrecondition } from '../core/error.ts';
import type { Log } from '../lib/log.ts';
import type { SandboxAccess, StartProcess } from '../sandbox/access.ts';
import { startPrograms } from './programs.ts';
import { dialDelaysOf } from './templates.ts';

/** Starts the programs of a template, and returns what was asked for and what was logged. */
async function started(template: string, start: (request: StartProcess) => void) {
  const requests: StartProcess[] = [];
  const logged: object[] = [];
  let closed = 0;
  const access = {
    startProcess: async (request: StartProcess) => {
      start(request);
      requests.push(request);
      return { pid: 2, ended: Promise.reject(new Error('closed')), close: () => (closed += 1) };
    },
  } as unknown as SandboxAccess;
  const log = { warn: (fields: object) => logged.push(fields) } as unknown as Log;
  await startPrograms(template, '/programs', access, log);
  return { requests, logged, closed };
}

test('starts the interpreter as a hidden process that nothing listens to', async () => {
  const { requests, logged, closed } = await started('code-interpreter-v1', () => undefined);
  expect(requests).toMatchObject([{ user: 'user', hidden: true, tag: 'code-interpreter', timeLimitMs: 0 }]);
  expect(requests[0]?.argv.at(-1)).toBe('/programs');
  expect({ logged, closed }).toEqual({ logged: [], closed: 1 });
});

test('starts nothing in a sandbox of a template without programs', async () => {
  expect((await started('base', () => undefined)).requests).toEqual([]);
});

test('logs a program that does not start', async () => {
  const { logged } = await started('code-interpreter-v1', () => {
    throw failedPrecondition('no processes');
  });
  expect(logged).toEqual([{ template: 'code-interpreter-v1', program: 'code-interpreter', error: 'no processes' }]);
});

test('waits only for ports of programs of the template', () => {
  expect(dialDelaysOf('code-interpreter-v1', 49_999).length).toBeGreaterThan(10);
  expect(dialDelaysOf('code-interpreter-v1', 3000)).toEqual([]);
  expect(dialDelaysOf('base', 49_999)).toEqual([]);
  expect(dialDelaysOf(undefined, 49_999)).toEqual([]);
});

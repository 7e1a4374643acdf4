import { join, resolve } from 'node:path';
import { describeWith } from '../probe.ts';
import { describeRuntime } from '../suites/runtime.ts';
import { HTTP_ENTRIES } from './http-entries.ts';
import { startProgram } from './program.ts';

const PYTHON = resolve(import.meta.dirname, '../../runtimes/python');
const FIXTURE = resolve(import.meta.dirname, '../fixtures/http');

/** Command prefix that runs its arguments in a separate network, because all servers use the same port. */
const ISOLATED = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];

describeWith(['root', 'namespaces'], 'servers of HTTP', () => {
  for (const [name, flag] of [
    ['http', '--http'],
    ['a program that serves HTTP and does not speak the protocol', '--program'],
  ] as const) {
    const server = ['python3', '-B', '-m', 'rookery_runtime', flag, 'python3', join(FIXTURE, 'server.py')];
    describeRuntime(name, {
      codePath: FIXTURE,
      entries: HTTP_ENTRIES,
      kind: 'server',
      readsInTurn: true,
      start: options =>
        startProgram([...ISOLATED, ...server], 'socket', {
          PYTHONPATH: PYTHON,
          ...(options?.slowToStop ? { ON_TERM: 'slow' } : {}),
        }),
    });
  }
});

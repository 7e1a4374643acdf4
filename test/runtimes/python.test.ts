import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { describeRuntime, type StartedRuntime } from '../suites/runtime.ts';
import { PYTHON_CODE, PYTHON_ENTRIES } from './python-entries.ts';

const PACKAGE = resolve(import.meta.dirname, '../../runtimes/python');

/** Returns each installed CPython from 3.6 on, by version. */
function interpreters(): Map<string, string> {
  const found = new Map<string, string>();
  const pyenv = join(homedir(), '.pyenv', 'versions');
  const directories = [
    ...(process.env.PATH ?? '').split(':'),
    ...list(pyenv).map(version => join(pyenv, version, 'bin')),
  ];
  for (const directory of directories) {
    for (const name of list(directory).filter(name => /^python3(\.\d+)?$/.test(name))) {
      try {
        const script = 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)';
        const output = execFileSync(join(directory, name), ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
        const [version = '', path = ''] = output.toString().trim().split(' ');
        if (Number(version.split('.')[1]) >= 6 && !found.has(version)) found.set(version, path);
      } catch {
        // The command is a shim of a version that is not installed.
      }
    }
  }
  return new Map([...found].sort(([a], [b]) => Number(a.split('.')[1]) - Number(b.split('.')[1])));
}

function list(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

async function start(python: string): Promise<StartedRuntime> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-python-'));
  const path = join(directory, 'runtime.sock');
  const logPath = join(directory, 'log');
  const log = openSync(logPath, 'a');
  const secret = randomUUID();
  const child = spawn(python, ['-m', 'rookery_runtime', '--socket', path], {
    env: {
      PATH: `${dirname(python)}:${process.env.PATH}`,
      PYTHONPATH: PACKAGE,
      ROOKERY_RUNTIME_SECRET: secret,
      PYTHONDONTWRITEBYTECODE: '1',
    },
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  const exited = new Promise<number | null>(resolve => child.once('exit', code => resolve(code)));
  return {
    endpoint: { kind: 'unix', path },
    secret,
    exited,
    log: () => readFileSync(logPath, 'utf8'),
    dispose: async () => {
      child.kill('SIGKILL');
      await exited;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const all = [...interpreters()];

test('the search finds at least one Python', () => {
  expect(all).not.toEqual([]);
});

// Runs the suite on the oldest and the newest version. The unit tests of the package run on all of them.
for (const [version, python] of all.filter((_, index) => index === 0 || index === all.length - 1)) {
  describeRuntime(`Python ${version}`, {
    codePath: PYTHON_CODE,
    entries: PYTHON_ENTRIES,
    readsInTurn: true,
    start: () => start(python),
  });
}

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll } from 'vitest';
import { describeWith } from '../probe.ts';
import { describeRuntime, type RuntimeEntries } from '../suites/runtime.ts';
import { type Listening, startProgram } from './program.ts';

const run = promisify(execFile);
const FIXTURE = resolve(import.meta.dirname, '../fixtures/go');
const PYTHON = resolve(import.meta.dirname, '../../runtimes/python');
const BUILD_MS = 300_000;

/** Names of the entries, which the program uses unchanged. */
const ENTRIES: RuntimeEntries = {
  echo: 'echo',
  fail: 'fail',
  exit: 'exit',
  count: 'count',
  gate: 'gate',
  sleep: 'sleep',
  notJson: 'notJson',
  text: 'text',
  deep: 'deep',
  stream: 'stream',
  log: 'log',
  flood: 'flood',
  facts: 'facts',
  spans: 'spans',
  manySpans: 'manySpans',
  start: 'start',
  startFails: 'startFails',
  startSlow: 'startSlow',
  stop: 'stop',
  stopFails: 'stopFails',
  stopSlow: 'stopSlow',
  // A program that cannot be started fails before there is a runtime.
  unloadable: {},
};

describeWith(['go'], 'the Go runtime', () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-go-'));
  const program = join(directory, 'program');

  beforeAll(async () => {
    await run('go', ['build', '-o', program, '.'], { cwd: FIXTURE });
  }, BUILD_MS);

  afterAll(() => rmSync(directory, { recursive: true }));

  const ways: [name: string, listening: Listening][] = [
    ['Go', 'socket'],
    ['Go on TCP', 'tcp'],
    ['Go on an inherited socket', { inheritedAs: 3 }],
  ];
  for (const [name, listening] of ways) {
    describeRuntime(name, { codePath: directory, entries: ENTRIES, start: () => startProgram([program], listening) });
  }
  // Starts the program as posix-custom-runtime does. The bridge then detects that the program does not serve
  // HTTP.
  const bridge = ['python3', '-B', '-m', 'rookery_runtime', '--program', program];
  describeRuntime('a program that makes its socket, behind the bridge', {
    codePath: directory,
    entries: ENTRIES,
    start: () => startProgram(bridge, 'socket', { PYTHONPATH: PYTHON }),
  });
});

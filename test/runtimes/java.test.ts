import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { Init } from '../../src/runtime/protocol.ts';
import { describeWith } from '../probe.ts';
import { describeRuntime, type RuntimeEntries } from '../suites/runtime.ts';
import { type Listening, startProgram } from './program.ts';

const run = promisify(execFile);
const PACKAGE = resolve(import.meta.dirname, '../../runtimes/java');
const FIXTURE = resolve(import.meta.dirname, '../fixtures/java');
const BUILD_MS = 600_000;
const WAIT_MS = 20_000;

/** Beside `java` of the path: those that the environment names as a user of the process sandbox does. */
const OTHERS = ['8', '11', '21'].flatMap(version => {
  const home = process.env[`JAVA_HOME_${version}`];
  return home === undefined ? [] : [{ version, java: join(home, 'bin', 'java') }];
});

function initOf(codePath: string, handler: string): Init {
  const names = { tenant: 't', namespace: 'n', name: 'a', functionName: '', version: '', instanceId: 'i' };
  const limits = { initTimeoutMs: 10_000, concurrency: 1, maxResultBytes: 1000, memoryMb: 512, cpuMillis: 500 };
  return { codePath, handler, initializer: '', preStop: '', ...names, ...limits };
}

describeWith(['java'], 'the Java runtime', () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-java-'));
  const code = join(directory, 'code');
  const jar = join(directory, 'runtime', 'rookery-runtime.jar');

  const entries: RuntimeEntries = {
    echo: 'fixture.Main.echo',
    fail: 'fixture.Main.fail',
    exit: 'fixture.Main.exit',
    count: 'fixture.Main.count',
    gate: 'fixture.Main.gate',
    sleep: 'fixture.Main.sleep',
    notJson: 'fixture.Main.notJson',
    text: 'fixture.Main.text',
    deep: 'fixture.Main.deep',
    stream: 'fixture.Main.stream',
    log: 'fixture.Main.log',
    flood: 'fixture.Main.flood',
    facts: 'fixture.Main.facts',
    start: 'fixture.Main.start',
    startFails: 'fixture.Main.startFails',
    startSlow: 'fixture.Main.startSlow',
    stop: 'fixture.Main.stop',
    stopFails: 'fixture.Main.stopFails',
    stopSlow: 'fixture.Main.stopSlow',
    unloadable: {
      'fixture.Nowhere.handler': `class fixture.Nowhere not found in ${code}`,
      'fixture.Main.nothing': 'fixture.Main has no public method nothing(event)',
      handler: 'it must have the form package.Class.method',
    },
  };

  beforeAll(async () => {
    const build = ['-q', '-B', `-DbuildDirectory=${join(directory, 'runtime')}`, '-DskipTests', 'package'];
    await run('mvn', build, { cwd: PACKAGE });
    await run('javac', ['--release', '8', '-cp', jar, '-d', code, join(FIXTURE, 'fixture', 'Main.java')]);
  }, BUILD_MS);

  afterAll(() => rmSync(directory, { recursive: true }));

  const ways: [name: string, program: string, listening: Listening][] = [
    ['Java', 'java', 'socket'],
    ['Java on TCP', 'java', 'tcp'],
    ['Java on an inherited socket', 'java', { inheritedAs: 0 }],
    ...OTHERS.map(({ version, java }): [string, string, Listening] => [`Java ${version}`, java, 'socket']),
  ];
  for (const [name, program, listening] of ways) {
    const argv = [program, '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-jar', jar];
    describeRuntime(name, { codePath: code, entries, start: () => startProgram(argv, listening) });
  }

  test('connections that have ended leave no memory behind', async () => {
    // Each has 64 KiB of it.
    const runtime = await startProgram(['java', '-XX:MaxDirectMemorySize=2m', '-jar', jar]);
    try {
      for (let round = 0; round < 40; round++) {
        const channel = await Channel.open(runtime.endpoint, runtime.secret, AbortSignal.timeout(WAIT_MS));
        channel.close();
      }
    } finally {
      await runtime.dispose();
    }
  });

  test('code whose stderr fails is answered as any other, and the next call runs', async () => {
    const runtime = await startProgram(['java', '-jar', jar]);
    const channel = await Channel.open(runtime.endpoint, runtime.secret, AbortSignal.timeout(WAIT_MS));
    try {
      const init = initOf(code, 'fixture.Main.failMute');
      expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
      const header = { traceId: '', traceparent: '', requestId: '' };
      for (let round = 0; round < 2; round++) {
        const outcome = await channel.call({ header, body: Buffer.from('{}'), timeoutMs: WAIT_MS });
        expect(outcome).toMatchObject({ ok: false, code: 4002 });
      }
    } finally {
      channel.close();
      await runtime.dispose();
    }
  });
});

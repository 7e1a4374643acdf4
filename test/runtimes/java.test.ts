import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { Init } from '../../src/runtime/protocol.ts';
import { describeWith } from '../probe.ts';
import { describeRuntime, type RuntimeEntries } from '../suites/runtime.ts';
import { startProgram, withListening } from './program.ts';

const run = promisify(execFile);
const PACKAGE = resolve(import.meta.dirname, '../../runtimes/java');
const FIXTURE = resolve(import.meta.dirname, '../fixtures/java');
const BUILD_MS = 600_000;
const WAIT_MS = 20_000;

/**
 * Javas that the environment names, in addition to `java` of the path. Users of the process sandbox name them
 * the same way.
 */
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
    spans: 'fixture.Main.spans',
    manySpans: 'fixture.Main.manySpans',
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

  const programs = OTHERS.map(({ version, java }) => ({ name: `Java ${version}`, program: java }));
  for (const [{ name, program }, listening, way] of withListening(
    [{ name: 'Java', program: 'java' }, ...programs],
    0,
  )) {
    const argv = [program, '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-jar', jar];
    describeRuntime(`${name}, ${way}`, { codePath: code, entries, start: () => startProgram(argv, listening) });
  }

  test('the runtime frees the memory of closed connections', async () => {
    // Each connection uses 64 KiB of direct memory.
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

  /** Returns the outcome of one call of a handler, with the value as text. */
  async function callOf(handler: string, event: string, { codePath = code, maxResultBytes = 10_000 } = {}) {
    const runtime = await startProgram(['java', '-XX:TieredStopAtLevel=1', '-jar', jar]);
    const channel = await Channel.open(runtime.endpoint, runtime.secret, AbortSignal.timeout(WAIT_MS));
    try {
      const init = { ...initOf(codePath, handler), maxResultBytes };
      const initialized = await channel.initialize(init, AbortSignal.timeout(WAIT_MS));
      if (!initialized.ok) return { ok: false, ...initialized.error };
      const header = { traceId: '', traceparent: '', requestId: '' };
      const outcome = await channel.call({ header, body: Buffer.from(event), timeoutMs: WAIT_MS });
      return outcome.ok ? { ok: true, text: outcome.data.toString() } : outcome;
    } finally {
      channel.close();
      await runtime.dispose();
    }
  }

  test.each([
    ['in an object', '"nan"', /NaN .*, at \$\.rows\[1\]\.when$/],
    ['in a map and an array', '"map"', /NaN .*, at \$\["a b"\]\[1\]\.rows\[1\]\.when$/],
    ['because it is a class', '"class"', /Class.*, at \$\.rows\[1\]\.when$/s],
  ])('a call fails with 4007 and names the place when its value cannot become JSON %s', async (_, event, message) => {
    const outcome = await callOf('fixture.Main.notJsonInside', event);
    expect(outcome).toMatchObject({ ok: false, code: 4007, text: expect.stringMatching(message) });
  });

  test.each([
    ['of 19 digits is a Long', '9'.repeat(18), 'Long'],
    ['of 1000 digits is a BigInteger', '7'.repeat(1000), 'BigInteger'],
    ['of 1024 digits is a BigInteger', '7'.repeat(1024), 'BigInteger'],
    ['of 1025 digits is a BigInteger', '7'.repeat(1025), 'BigInteger'],
    ['of 4300 digits is a BigInteger', `-${'7'.repeat(4300)}`, 'BigInteger'],
  ])('a number %s when the handler takes a Map', async (_, number, type) => {
    const event = `{"text":"\\"${'1'.repeat(3000)}\\\\","n":${number},"t":"1E-7"}`;
    expect(await callOf('fixture.Main.number', event)).toEqual({ ok: true, text: `["${type}",${number}]` });
  });

  test('a text of 3000 digits stays a text, and long numbers reach fields of any type', async () => {
    const [one, other, digits] = ['1'.repeat(4300), '2'.repeat(2000), '3'.repeat(3000)];
    const event = `{"n":${one},"more":["${digits}",{"x":[${other}]},1]}`;
    expect(await callOf('fixture.Main.largeField', event, { maxResultBytes: 20_000 })).toEqual({
      ok: true,
      text: `[${one},["${digits}",{"x":[${other}]},1]]`,
    });
  });

  test.each([
    ['is a file', () => jar, /is a file and not a directory: unpack it, and mount the directory/],
    [
      'is a link to nowhere',
      () => brokenLink('linked-code'),
      /is a link to \/nowhere\/x, which does not exist inside the sandbox/,
    ],
    ['does not exist', () => join(directory, 'nothing'), /nothing does not exist/],
    [
      'has a jar that is a link to nowhere',
      () => join(brokenLink('with-link/app.jar'), '..'),
      /class fixture\.Main not found in .*; .*app\.jar is a link to \/nowhere\/x, which does not exist inside the sandbox/,
    ],
  ])('a load fails with 4001 and the reason when the code directory %s', async (_, path, message) => {
    const outcome = await callOf('fixture.Main.echo', '{}', { codePath: path() });
    expect(outcome).toMatchObject({ ok: false, code: 4001, message: expect.stringMatching(message) });
  });

  function brokenLink(name: string): string {
    const path = join(directory, name);
    mkdirSync(dirname(path), { recursive: true });
    rmSync(path, { force: true });
    symlinkSync('/nowhere/x', path);
    return path;
  }

  test('a call gets its answer when its code breaks stderr, and the next call runs', async () => {
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

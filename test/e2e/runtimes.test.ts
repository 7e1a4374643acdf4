import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findRuntimeJar } from '../../src/runtime/jdks.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const run = promisify(execFile);
const BUILD_MS = 300_000;
const JAVA_PACKAGE = resolve(import.meta.dirname, '../../runtimes/java');
/** 17 is the JDK that the tests build with. */
const JAVAS = ['8', '11', '17', '21']
  .filter(version => version === '17' || process.env[`JAVA_HOME_${version}`] !== undefined)
  .map(version => `java${version}`);
const GO_FIXTURE = resolve(import.meta.dirname, '../fixtures/go');

let bed: Bed;

beforeAll(async () => {
  bed = await Bed.start({}, { env: { ROOKERY_CREATE_TIMEOUT_MS: '5000' } });
  // A program is executed by the sandbox's user, who need not be its owner.
  chmodSync(bed.codeDir, 0o755);
});
afterAll(() => bed[Symbol.asyncDispose]());

/** A program of the code directory. */
function script(name: string, source: string): void {
  writeFileSync(join(bed.codeDir, name), `#!/bin/sh\n${source}\n`);
  chmodSync(join(bed.codeDir, name), 0o755);
}

async function refusal(name: string, handler: string, spec: Readonly<Record<string, unknown>>): Promise<unknown> {
  const { status, body } = await bed.ask('POST', '/api/agent', bed.createBody(name, handler, spec));
  expect(status).toBe(500);
  return body.message;
}

/** Directories of sandboxes that are there: a start that failed must leave none. */
function sandboxes(): readonly string[] {
  return readdirSync(join(bed.server.dataDir, 'run', 'instances'));
}

describeWith(['go'], 'Go programs', () => {
  beforeAll(async () => {
    await run('go', ['build', '-o', join(bed.codeDir, 'program'), '.'], { cwd: GO_FIXTURE });
    // The fixture chooses its behaviour by the handler that INIT names.
    for (const name of ['echo', 'fail', 'count', 'facts']) {
      await run('ln', [join(bed.codeDir, 'program'), join(bed.codeDir, name)]);
    }
  }, BUILD_MS);

  test.each(['go', 'posix-custom-runtime', 'zig'])(
    '%s: <codePath>/<handler> serves calls, errors and state',
    async runtime => {
      const echo = await bed.create(`${runtime}-echo`, 'echo', { runtime });
      expect(await bed.invoke(echo, { a: [1, 'é'] })).toMatchObject({ status: 200, body: { data: { a: [1, 'é'] } } });
      const fail = await bed.create(`${runtime}-fail`, 'fail', { runtime });
      expect(await bed.invoke(fail)).toMatchObject({
        status: 500,
        body: {
          message: expect.stringMatching(/^invoke failed: code=4002 err=Fail to run user call handler\. err: .*boom/),
        },
      });
      const count = await bed.create(`${runtime}-count`, 'count', {
        runtime,
        extendedHandler: { initializer: 'start', pre_stop: 'stop' },
      });
      expect((await bed.invoke(count)).body.data).toBe(101);
      expect((await bed.invoke(count)).body.data).toBe(102);
      for (const id of [echo, fail, count]) {
        expect(await bed.ask('DELETE', `/api/agent/${id}`)).toMatchObject({ status: 200 });
      }
      expect(sandboxes()).toEqual([]);
    },
  );

  test('as a user that is not root, found again after kill -9 of the server', async () => {
    const id = await bed.create('adopted', 'count', { runtime: 'go', rootfs: { imageurl: 'host', user: 'nobody' } });
    expect((await bed.invoke(id)).body.data).toBe(1);
    await bed.killAndRestart();
    expect((await bed.invoke(id)).body.data).toBe(2);
    await bed.ask('DELETE', `/api/agent/${id}`);
  });
});

describeWith(['java'], 'Java handlers', () => {
  beforeAll(async () => {
    if (typeof findRuntimeJar() === 'string') {
      await run('mvn', ['-q', '-B', '-DskipTests', 'package'], { cwd: JAVA_PACKAGE });
    }
    const directory = join(bed.codeDir, 'java');
    mkdirSync(directory);
    writeFileSync(
      join(directory, 'Main.java'),
      `package app;
       import java.util.Map;
       public class Main {
         static int count;
         public static Object echo(Object event) { return event; }
         public static Object fail(Map<String, Object> event) { throw new IllegalStateException("boom"); }
         public static int count(Map<String, Object> event) { return ++count; }
         public static void start() { count = 100; }
       }`,
    );
    await run('javac', ['--release', '8', '-d', directory, join(directory, 'Main.java')]);
  }, BUILD_MS);

  test.each(JAVAS)('%s: package.Class.method serves calls, errors, the initializer and state', async runtime => {
    const java = { runtime, codePath: '/code/java', memory: 512 };
    const id = await bed.create('java', 'app.Main.count', {
      ...java,
      extendedHandler: { initializer: 'app.Main.start' },
    });
    expect((await bed.invoke(id)).body.data).toBe(101);
    expect((await bed.invoke(id)).body.data).toBe(102);
    const fail = await bed.create('java-fail', 'app.Main.fail', java);
    expect((await bed.invoke(fail)).body.message).toMatch(/^invoke failed: code=4002 .*boom/);
    const missing = await bed.create('java-missing', 'app.Nowhere.x', java);
    expect((await bed.invoke(missing)).body.message).toMatch(/^invoke failed: code=4001 .*app\.Nowhere/);
    for (const each of [id, fail, missing]) await bed.ask('DELETE', `/api/agent/${each}`);
    expect(sandboxes()).toEqual([]);
  });

  test.skipIf(process.env.JAVA_HOME_8)('a Java that this machine does not have is an invalid function', async () => {
    expect(await refusal('java8', 'app.Main.echo', { runtime: 'java8' })).toMatch(
      /^failed to create agent: invalid function: runtime java8 is not available: no Java 8 was found/,
    );
  });
});

describe.each(['go', 'posix-custom-runtime'])('a program that cannot serve: %s', runtime => {
  test('a code path that is not there, is empty, or is not absolute: deploy dir is empty', async () => {
    mkdirSync(join(bed.codeDir, 'nothing'), { recursive: true });
    const missing = await refusal('missing', 'app', { runtime, codePath: '/code/missing' });
    expect(missing).toMatch(/^failed to create agent: deploy dir is empty: \/code\/missing is not there/);
    const empty = await refusal('empty', 'app', { runtime, codePath: '/code/nothing' });
    expect(empty).toBe('failed to create agent: deploy dir is empty: there is nothing in /code/nothing');
    const relative = await refusal('relative', 'app', { runtime, codePath: '' });
    expect(relative).toMatch(/^failed to create agent: deploy dir is empty: codePath must be an absolute path/);
    expect(sandboxes()).toEqual([]);
  });

  test('a program that is not there, or is not executable, is named', async () => {
    writeFileSync(join(bed.codeDir, 'text'), 'no program');
    expect(await refusal('none', 'none', { runtime })).toBe('failed to create agent: there is no program /code/none');
    expect(await refusal('text', 'text', { runtime })).toBe(
      'failed to create agent: /code/text is not an executable file',
    );
    expect(sandboxes()).toEqual([]);
  });

  test('one that ends before it serves fails the create with its exit', async () => {
    script('ends', 'exit 7');
    expect(await refusal('ends', 'ends', { runtime })).toBe('failed to create agent: instance exited: exit code 7');
    expect(sandboxes()).toEqual([]);
  });

  test('one that never serves fails the create at the end of its time, and nothing is left', async () => {
    script('sleeps', 'exec sleep 1000');
    expect(await refusal('sleeps', 'sleeps', { runtime })).toBe(
      'failed to create agent: the instance did not start within 5 s',
    );
    expect(sandboxes()).toEqual([]);
  });

  test('without a handler each call learns that it is missing', async () => {
    const id = await bed.create('no-handler', '', { runtime });
    const { status, body } = await bed.invoke(id);
    expect(status).toBe(500);
    expect(body.message).toContain('empty user call code');
    await bed.ask('DELETE', `/api/agent/${id}`);
  });
});

describeWith(['root'], 'a program of another user', () => {
  test('one that the user of the sandbox may not execute is named with the user', async () => {
    mkdirSync(join(bed.codeDir, 'closed'), { recursive: true });
    script('closed/app', 'exit 0');
    chmodSync(join(bed.codeDir, 'closed'), 0o700);
    const rootfs = { imageurl: 'host', user: 'nobody' };
    expect(await refusal('closed', 'app', { runtime: 'go', codePath: '/code/closed', rootfs })).toMatch(
      /^failed to create agent: nobody \(uid \d+\) may not execute \/code\/closed\/app: /,
    );
    expect(sandboxes()).toEqual([]);
  });
});

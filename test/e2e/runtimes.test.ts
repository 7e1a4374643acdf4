import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runtimeJar } from '../parts/runtime-jar.ts';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const run = promisify(execFile);
const BUILD_MS = 300_000;
/** Java versions of the tests; 17 is the JDK with which the tests build. */
const JAVAS = ['8', '11', '17', '21']
  .filter(version => version === '17' || process.env[`JAVA_HOME_${version}`] !== undefined)
  .map(version => `java${version}`);
const GO_FIXTURE = resolve(import.meta.dirname, '../fixtures/go');

let bed: Bed;

beforeAll(async () => {
  bed = await Bed.start({}, { env: { ROOKERY_CREATE_TIMEOUT_MS: '5000' } });
  // The sandbox's user executes the program and need not be its owner.
  chmodSync(bed.codeDir, 0o755);
});
afterAll(() => bed[Symbol.asyncDispose]());

/** Writes a program into the code directory. */
function script(name: string, source: string): void {
  writeFileSync(join(bed.codeDir, name), `#!/bin/sh\n${source}\n`);
  chmodSync(join(bed.codeDir, name), 0o755);
}

async function refusal(name: string, handler: string, spec: Readonly<Record<string, unknown>>): Promise<unknown> {
  const { status, body } = await bed.ask('POST', '/api/agent', bed.createBody(name, handler, spec));
  expect(status).toBe(500);
  return body.message;
}

/** Returns the existing directories of sandboxes, since a failed start must leave none. */
function sandboxes(): readonly string[] {
  return readdirSync(join(bed.server.dataDir, 'run', 'instances'));
}

describeWith(['go'], 'Go programs', () => {
  beforeAll(async () => {
    await run('go', ['build', '-o', join(bed.codeDir, 'program'), '.'], { cwd: GO_FIXTURE });
    // The fixture chooses its behaviour by the handler in INIT.
    for (const name of ['echo', 'fail', 'count', 'facts']) {
      await run('ln', [join(bed.codeDir, 'program'), join(bed.codeDir, name)]);
    }
  }, BUILD_MS);

  test.each(['go', 'posix-custom-runtime', 'zig'])(
    'a Go program of %s at <codePath>/<handler> serves calls, errors and state',
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

  test('a Go program runs as a user that is not root and is adopted after kill -9 of the server', async () => {
    const id = await bed.create('adopted', 'count', { runtime: 'go', rootfs: { imageurl: 'host', user: 'nobody' } });
    expect((await bed.invoke(id)).body.data).toBe(1);
    await bed.killAndRestart();
    expect((await bed.invoke(id)).body.data).toBe(2);
    await bed.ask('DELETE', `/api/agent/${id}`);
  });
});

describeWith(['java'], 'Java handlers', () => {
  beforeAll(async () => {
    await runtimeJar();
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

  test.each(JAVAS)('a Java handler of %s serves calls, errors, the initializer and state', async runtime => {
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

  test.skipIf(process.env.JAVA_HOME_8)(
    'a Java version that the machine lacks is refused as an invalid function',
    async () => {
      expect(await refusal('java8', 'app.Main.echo', { runtime: 'java8' })).toMatch(
        /^failed to create agent: invalid function: runtime java8 is not available: no Java 8 was found/,
      );
    },
  );
});

/** Node versions: the version that runs the tests, and those that the environment names. */
const NODES = ['20', '22', '24']
  .filter(
    version => process.versions.node.startsWith(`${version}.`) || process.env[`NODE_HOME_${version}`] !== undefined,
  )
  .map(version => `nodejs${version}`);

describe('Node.js handlers', () => {
  beforeAll(() => {
    const directory = join(bed.codeDir, 'nodejs');
    mkdirSync(directory);
    writeFileSync(
      join(directory, 'index.js'),
      `let count = 0;
       exports.start = () => { count = 100; };
       exports.count = () => ++count;
       exports.version = () => process.versions.node;
       exports.fail = () => { throw new TypeError('boom'); };
       exports.settings = () => Object.keys(process.env).filter(name => name.startsWith('ROOKERY_RUNTIME'));`,
    );
    writeFileSync(
      join(directory, 'view.js'),
      `const fs = require('node:fs');
       const lines = (file, names) => fs.readFileSync(file, 'utf8').split('\\n').filter(line => names.test(line));
       exports.look = () => ({
         command: fs.readFileSync('/proc/self/cmdline', 'utf8'),
         status: lines('/proc/self/status', /^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):/),
         limits: lines('/proc/self/limits', /core|open files|pending|msgqueue|data size/),
         mounts: lines('/proc/self/mountinfo', /./).map(line => line.split(' ')[4]).sort(),
         root: fs.readdirSync('/').sort(),
         descriptors: fs.readdirSync('/proc/self/fd').map(fd => { try { return fs.readlinkSync('/proc/self/fd/' + fd).replace(/\\d+/g, ''); } catch { return ''; } })
           .filter(to => to.startsWith('/') && !to.startsWith('/dev/') && !to.startsWith('/proc/')),
         argv: process.argv.slice(2),
         variables: Object.keys(process.env).sort(),
         settings: Object.keys(process.env).filter(name => name.startsWith('ROOKERY_RUNTIME')),
         colour: process.env.COLOUR,
         cwd: process.cwd(),
       });`,
    );
    writeFileSync(
      join(directory, 'typed.ts'),
      `interface Event { readonly name: string }
       export const handle = async ({ name }: Event, context: { tenant: string }): Promise<unknown> => ({ hello: name as string, at: import.meta.url });`,
    );
  });

  test.each([...NODES, 'nodejs'])(
    'a Node.js handler of %s serves calls, errors, the initializer and state',
    async runtime => {
      const node = { runtime, codePath: '/code/nodejs', memory: 256 };
      const id = await bed.create('node', 'index.count', { ...node, extendedHandler: { initializer: 'index.start' } });
      expect((await bed.invoke(id)).body.data).toBe(101);
      expect((await bed.invoke(id)).body.data).toBe(102);
      const version = await bed.create('node-version', 'index.version', node);
      expect((await bed.invoke(version)).body.data).toMatch(runtime === 'nodejs' ? /^\d+\./ : `${runtime.slice(6)}.`);
      const fail = await bed.create('node-fail', 'index.fail', node);
      expect((await bed.invoke(fail)).body.message).toMatch(/^invoke failed: code=4002 .*TypeError: boom/);
      const missing = await bed.create('node-missing', 'nowhere.x', node);
      expect((await bed.invoke(missing)).body.message).toMatch(/^invoke failed: code=4001 .*nowhere/);
      const settings = await bed.create('node-settings', 'index.settings', node);
      expect((await bed.invoke(settings)).body.data).toEqual([]);
      for (const each of [id, version, fail, missing, settings]) await bed.ask('DELETE', `/api/agent/${each}`);
      expect(sandboxes()).toEqual([]);
    },
  );

  test.each(NODES)(
    '%s: an instance whose Node waited for it is as confined as one that starts its own',
    async runtime => {
      const node = { runtime, codePath: '/code/nodejs' };
      const views: Record<string, unknown>[] = [];
      // Waiting Node processes have a size of 2048 MB.
      for (const [memory, env] of [
        [2048, {}],
        [1024, {}],
        [2048, { NODE_OPTIONS: '--no-warnings' }],
      ] as const) {
        const id = await bed.create(
          'node-view',
          'view.look',
          { ...node, memory },
          { env_vars: { COLOUR: 'red', ...env } },
        );
        views.push((await bed.invoke(id)).body.data as Record<string, unknown>);
        await bed.ask('DELETE', `/api/agent/${id}`);
      }
      const waited = views.map(({ command }) => String(command).includes('--wait-for-orders'));
      // No process can wait where its limits depend on the request, as without control groups.
      expect(waited.slice(1)).toEqual([false, false]);
      // Without control groups the requested memory limits the data size.
      const isFixed = (line: string) => !line.startsWith('Max data size');
      const [first, second] = views.map(({ command: _, limits, ...view }) => ({
        ...view,
        limits: (limits as string[]).filter(isFixed),
      }));
      expect(first).toEqual(second);
      expect(first).toMatchObject({ colour: 'red', cwd: '/code/nodejs', settings: [] });
      expect(sandboxes()).toEqual([]);
    },
  );

  test.each(NODES)('a TypeScript handler of %s runs without a build as a user that is not root', async runtime => {
    const rootfs = { imageurl: 'host', user: 'nobody' };
    const id = await bed.create('node-typed', 'typed.handle', {
      runtime,
      codePath: '/code/nodejs',
      memory: 512,
      rootfs,
    });
    expect((await bed.invoke(id, { name: 'ada' })).body.data).toEqual({
      hello: 'ada',
      at: 'file:///code/nodejs/typed.ts',
    });
    await bed.ask('DELETE', `/api/agent/${id}`);
  });
});

describe.each(['go', 'posix-custom-runtime'])('a program that cannot serve: %s', runtime => {
  test('a code path that is missing, empty or relative is refused with "deploy dir is empty"', async () => {
    mkdirSync(join(bed.codeDir, 'nothing'), { recursive: true });
    const missing = await refusal('missing', 'app', { runtime, codePath: '/code/missing' });
    expect(missing).toMatch(/^failed to create agent: deploy dir is empty: \/code\/missing does not exist/);
    const empty = await refusal('empty', 'app', { runtime, codePath: '/code/nothing' });
    expect(empty).toBe('failed to create agent: deploy dir is empty: there is nothing in /code/nothing');
    const relative = await refusal('relative', 'app', { runtime, codePath: '' });
    expect(relative).toMatch(/^failed to create agent: deploy dir is empty: codePath must be an absolute path/);
    expect(sandboxes()).toEqual([]);
  });

  test('the error names a program that is missing or not executable', async () => {
    writeFileSync(join(bed.codeDir, 'text'), 'no program');
    expect(await refusal('none', 'none', { runtime })).toBe('failed to create agent: there is no program /code/none');
    expect(await refusal('text', 'text', { runtime })).toBe(
      'failed to create agent: /code/text is not an executable file',
    );
    expect(sandboxes()).toEqual([]);
  });

  test('a program that exits before it serves fails the create with its exit', async () => {
    script('ends', 'exit 7');
    expect(await refusal('ends', 'ends', { runtime })).toBe('failed to create agent: instance exited: exit code 7');
    expect(sandboxes()).toEqual([]);
  });

  test('a program that never serves fails the create when its time is over, and nothing remains', async () => {
    script('sleeps', 'exec sleep 1000');
    expect(await refusal('sleeps', 'sleeps', { runtime })).toBe(
      'failed to create agent: the instance did not start within 5 s',
    );
    expect(sandboxes()).toEqual([]);
  });

  test('each call of a program without a handler fails with the missing handler', async () => {
    const id = await bed.create('no-handler', '', { runtime });
    const { status, body } = await bed.invoke(id);
    expect(status).toBe(500);
    expect(body.message).toContain('empty user call code');
    await bed.ask('DELETE', `/api/agent/${id}`);
  });
});

describeWith(['root'], 'a program of another user', () => {
  test('a program that the sandbox’s user may not execute is reported with the user', async () => {
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

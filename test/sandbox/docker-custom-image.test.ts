import { execFile } from 'node:child_process';
import { chmodSync, cpSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LIMITS } from '../../src/core/limits.ts';
import type { Call } from '../../src/runtime/call.ts';
import { Channel } from '../../src/runtime/channel.ts';
import type { Init } from '../../src/runtime/protocol.ts';
import type { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { describeExit, type SandboxHandle } from '../../src/sandbox/driver.ts';
import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { DOCKER_START_MS, sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { HTTP_ENTRIES } from '../runtimes/http-entries.ts';
import { describeRuntime } from '../suites/runtime.ts';
import { isError } from '../suites/sandbox-driver.ts';
import { DockerFixture } from './docker-fixture.ts';

const execute = promisify(execFile);
const SERVER = resolve(import.meta.dirname, '../fixtures/http/server.py');
const IMAGE = `rookery-test/custom-${process.pid}`;
const WAIT_MS = 30_000;

/** Builds an image of the HTTP server fixture with its own command. */
async function buildImage(host: string, image: string, lines: readonly string[]): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-custom-'));
  try {
    cpSync(SERVER, join(directory, 'server.py'));
    writeFileSync(join(directory, 'Dockerfile'), [`FROM ${IMAGES.python}`, ...lines, ''].join('\n'));
    await execute('docker', ['build', '--quiet', '--tag', image, directory], {
      env: { ...process.env, DOCKER_HOST: host, DOCKER_BUILDKIT: '0' },
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

describeWith(['docker'], 'with a docker daemon', () => {
  let host: string;
  let fixture: DockerFixture;
  let driver: DockerDriver;
  let files: string;
  const temporary = process.env.TMPDIR;

  beforeAll(async () => {
    ({ host } = await sharedDocker());
    fixture = new DockerFixture(host, IMAGE);
    driver = fixture.driver();
    const lines = ['COPY server.py /app/', 'WORKDIR /app', 'ENV COLOUR=blue', 'CMD ["python3", "-B", "server.py"]'];
    await buildImage(host, IMAGE, lines);
    files = mkdtempSync(join(tmpdir(), 'rookery-files-'));
    process.env.TMPDIR = files;
  }, DOCKER_START_MS);

  afterAll(async () => {
    if (temporary === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = temporary;
    rmSync(files, { recursive: true, force: true });
    await fixture?.dispose();
    await execute('docker', ['rmi', '--force', IMAGE], { env: { ...process.env, DOCKER_HOST: host } });
  });

  const start = (changes: Parameters<DockerFixture['spec']>[0] = {}) => {
    const spec = fixture.spec({ command: { kind: 'image' }, mounts: [], ...changes });
    return driver.start(spec, AbortSignal.timeout(WAIT_MS)).then(started => ({ spec, ...started }));
  };

  describeRuntime('custom image', {
    codePath: '/app',
    entries: HTTP_ENTRIES,
    kind: 'server',
    readsInTurn: true,
    isLogLate: true,
    start: async options => {
      const env = { ...fixture.spec().env, ...(options?.slowToStop ? { ON_TERM: 'slow' } : {}) };
      // Files that the suite makes on the host must be visible inside.
      const platformMounts = [{ source: files, target: files, readonly: false }];
      const { spec, handle, endpoint } = await start({ env, platformMounts });
      const chunks: Buffer[] = [];
      const following = new AbortController();
      const reading = follow(handle, following.signal, chunks);
      return {
        endpoint,
        secret: spec.secret,
        exited: exitOf(handle, reading),
        log: () => Buffer.concat(chunks).toString(),
        dispose: async () => {
          await driver.remove(handle);
          following.abort();
          await reading;
        },
      };
    },
  });

  async function follow(handle: SandboxHandle, signal: AbortSignal, chunks: Buffer[]): Promise<void> {
    for await (const chunk of driver.logs(handle, { tail: null, sinceMs: null, follow: true }, signal))
      chunks.push(chunk);
  }

  /**
   * Returns the exit code of the sandbox. If the runtime exits while its program ignores the stop, stops the
   * container as the server would.
   */
  async function exitOf(handle: SandboxHandle, reading: Promise<void>): Promise<number | null> {
    const left = await Promise.race([driver.wait(handle), bridgeEnd(handle.instanceId)]);
    if (left === null) await driver.stop(handle, 0);
    const { code, signal } = await driver.wait(handle);
    await reading;
    return left === null && signal === 'SIGKILL' ? 0 : code;
  }

  describe('custom image', () => {
    const open = async (started: Awaited<ReturnType<typeof start>>) => {
      const channel = await Channel.open(started.endpoint, started.spec.secret, AbortSignal.timeout(WAIT_MS));
      const outcome = await channel.initialize(initOf(started.spec.instanceId), AbortSignal.timeout(WAIT_MS));
      expect(outcome).toMatchObject({ ok: true });
      return channel;
    };

    test('a custom image runs its command in its directory, with its variables, as the user', async () => {
      const started = await start({ rootfs: { type: 'image', imageUrl: IMAGE, user: IMAGE_USER.name } });
      const channel = await open(started);
      const outcome = await channel.call(callOf({ number: 1 }));
      expect(outcome).toMatchObject({ ok: true });
      const command = {
        argv: ['sh', '-c', 'cat /proc/1/cmdline | tr "\\0" " "; echo $COLOUR; pwd; id -u'],
        workingDir: '',
      };
      const request = { ...command, env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 10_000 };
      const { stdout } = await driver.exec(started.handle, request, AbortSignal.timeout(WAIT_MS));
      expect(stdout).toContain('python3 -B server.py');
      expect(stdout).toContain(`blue\n/app\n${IMAGE_USER.uid}\n`);
      channel.close();
      await driver.remove(started.handle);
      await bridgeEnd(started.spec.instanceId);
    });

    test('a container of a custom image is found by another driver with its state', async () => {
      const started = await start();
      (await open(started)).close();
      const other = fixture.driver();
      expect(await other.inspect(started.handle)).toEqual({ state: 'running' });
      const channel = await Channel.open(started.endpoint, started.spec.secret, AbortSignal.timeout(WAIT_MS));
      expect(channel.hello.state).toBe('ready');
      expect(await channel.call(callOf({ answer: 42 }))).toMatchObject({ ok: true });
      channel.close();
      await other.remove(started.handle);
      await bridgeEnd(started.spec.instanceId);
    });

    test.each([60, 200])(
      'a data directory with a path %i characters longer works, and so does the access to sandboxes',
      async more => {
        const base = mkdtempSync(join(tmpdir(), 'rookery-long-'));
        const far = new DockerFixture(host, IMAGE, { dataDir: join(base, 'x'.repeat(more)) });
        try {
          const under = far.driver();
          const spec = far.spec({ command: { kind: 'image' }, mounts: [] });
          const started = await under.start(spec, AbortSignal.timeout(WAIT_MS));
          const channel = await open({ spec, ...started });
          expect(await channel.call(callOf({ number: 1 }))).toMatchObject({ ok: true });
          channel.close();
          const file = await under.access(started.handle).openFile('/app/server.py', AbortSignal.timeout(WAIT_MS));
          expect(file.sizeBytes).toBeGreaterThan(0);
          file.close();
          await under.remove(started.handle);
          await bridgeEnd(spec.instanceId);
        } finally {
          await far.dispose();
          rmSync(base, { recursive: true, force: true });
        }
      },
    );

    test('an image whose command ends at once fails the start without residue', async () => {
      const spec = fixture.spec({ command: { kind: 'image' }, mounts: [] });
      const failing = { ...spec, rootfs: { type: 'image' as const, imageUrl: IMAGES.plain, user: '' } };
      // The end may be seen shortly before or after the start resolves.
      const how = await driver.start(failing, AbortSignal.timeout(WAIT_MS)).then(
        async ({ handle }) => describeExit(await driver.wait(handle)),
        error => String(error.message),
      );
      expect(how).toContain('exit code 0');
      for (const { handle, instanceId } of await driver.list()) {
        if (instanceId === spec.instanceId) await driver.remove(handle);
      }
      await bridgeEnd(spec.instanceId);
    });

    test.each([
      ['root', ''],
      ['a user of the image', IMAGE_USER.name],
    ])(
      'a file that the command of an image creates in a mount is not executable as %s on the host',
      async (_who, user) => {
        const image = `${IMAGE}-bits`;
        const script =
          'cp /bin/sh /writable/a; chmod 6755 /writable/a; install -m 4755 /bin/sh /writable/b; touch /writable/c';
        await buildImage(host, image, [`USER ${IMAGE_USER.name}`, `CMD ["sh", "-c", "${script}"]`]);
        const workspace = mkdtempSync(join(tmpdir(), 'rookery-bits-'));
        chmodSync(workspace, 0o777);
        const spec = fixture.spec({
          command: { kind: 'image' },
          mounts: [{ source: workspace, target: '/writable', readonly: false }],
          rootfs: { type: 'image', imageUrl: image, user },
        });
        // The program ends before it serves.
        await driver.start(spec, AbortSignal.timeout(WAIT_MS)).then(
          ({ handle }) => driver.wait(handle),
          () => undefined,
        );
        const made = readdirSync(workspace);
        expect(made).toEqual(expect.arrayContaining(['a', 'c']));
        for (const name of made) {
          expect([name, statSync(join(workspace, name)).mode & 0o6000]).toEqual([name, 0]);
        }
        rmSync(workspace, { recursive: true });
        for (const { handle, instanceId } of await driver.list()) {
          if (instanceId === spec.instanceId) await driver.remove(handle);
        }
        await bridgeEnd(spec.instanceId);
      },
    );

    test('a connection to a program that does not serve fails with the reason', async () => {
      const env = { ...fixture.spec().env, HTTP_START_SECONDS: '0.3' };
      const image = `${IMAGE}-idle`;
      await buildImage(host, image, ['CMD ["sleep", "1000"]']);
      const started = await start({ env, rootfs: { type: 'image', imageUrl: image, user: '' } });
      const opening = Channel.open(started.endpoint, started.spec.secret, AbortSignal.timeout(WAIT_MS));
      await expect(opening).rejects.toThrow(
        /the program of the image did not serve within 0.3 s: nothing listens on 127.0.0.1:8000/,
      );
      await driver.remove(started.handle);
      await bridgeEnd(started.spec.instanceId);
      await execute('docker', ['rmi', '--force', image], { env: { ...process.env, DOCKER_HOST: host } });
    });

    test('a missing image fails the start with its name', async () => {
      const missing = start({ rootfs: { type: 'image', imageUrl: 'localhost:1/nothing:here', user: '' } });
      await expect(missing).rejects.toThrow(/localhost:1\/nothing:here/);
      await expect(missing).rejects.toSatisfy(isError('failed_precondition'));
    });
  });
});

/** Resolves with null when no bridge of this instance runs. */
async function bridgeEnd(instanceId: string): Promise<null> {
  const signal = AbortSignal.timeout(WAIT_MS);
  while (await bridgeLives(instanceId)) await delay(20, undefined, { signal });
  return null;
}

async function bridgeLives(instanceId: string): Promise<boolean> {
  for (const pid of (await readdir('/proc')).filter(name => /^\d+$/.test(name))) {
    const title = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (title.startsWith(`rookery: bridge ${instanceId}`)) return true;
  }
  return false;
}

function initOf(instanceId: string): Init {
  return {
    ...{ codePath: '/app', handler: 'echo', initializer: '', preStop: '', initTimeoutMs: 10_000, concurrency: 1 },
    ...{ maxResultBytes: LIMITS.responseBodyBytes, instanceId, tenant: 'default', namespace: 'space', name: 'agent' },
    ...{ functionName: '', version: '', memoryMb: 256, cpuMillis: 1000 },
  };
}

function callOf(event: unknown): Call {
  return {
    header: { traceId: 'trace', traceparent: '', requestId: 'request' },
    body: Buffer.from(JSON.stringify(event)),
    timeoutMs: WAIT_MS,
  };
}

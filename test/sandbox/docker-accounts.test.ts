import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SandboxDriver, SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeAccountFiles } from '../suites/account-files.ts';
import { describeProcesses } from '../suites/sandbox-processes.ts';
import { DockerFixture } from './docker-fixture.ts';

const WAIT_MS = 60_000;

/** Starts containers with accounts. */
class AccountsFixture extends DockerFixture {
  override spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    const { PATH: _path, HOME: _home, ...env } = super.spec().env;
    return super.spec({
      ...{ hasAccounts: true, command: { kind: 'exec', argv: [] }, workingDir: '/', mounts: [] },
      ...{ env: { ...env, E2B_SANDBOX: 'true' }, ...changes },
    });
  }
}

describeWith(['docker'], 'with a docker daemon', () => {
  const fixtureOf = async (image: string) => new AccountsFixture((await sharedDocker()).host, image);

  describeProcesses(
    'processes of a container with accounts',
    async () => (await fixtureOf(IMAGES.python)).underTest(IMAGE_USER),
    true,
  );

  describeAccountFiles('files of a container with accounts', async () =>
    (await fixtureOf(IMAGES.python)).underTest(IMAGE_USER),
  );

  describe('an image that holds the template of a tenant', () => {
    let fixture: AccountsFixture;
    let driver: SandboxDriver;
    let image: string;
    const build = randomUUID();
    const handles: SandboxHandle[] = [];
    const start = async (changes: Partial<SandboxSpec>) => {
      const instanceId = randomUUID();
      const spec = fixture.spec({
        instanceId,
        tenant: 'one',
        rootfs: { type: 'image', imageUrl: image, user: '' },
        ...changes,
      });
      const { handle } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
      handles.push(handle);
      return handle;
    };
    const output = async (handle: SandboxHandle, script: string) => {
      const argv = ['/bin/sh', '-c', script];
      const request = { argv, workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100_000 };
      return (await driver.exec(handle, request, AbortSignal.timeout(WAIT_MS))).stdout.trim();
    };
    const idOf = async () => (await driver.images?.committed())?.find(each => each.build === build)?.id ?? '';

    beforeAll(async () => {
      fixture = await fixtureOf(IMAGES.plain);
      driver = fixture.driver();
      image = IMAGES.plain;
      const first = await start({});
      await output(first, 'echo of the build > /home/user/file');
      image = (await driver.images?.commit(first.instanceId, { tenant: 'one', build })) ?? '';
    }, WAIT_MS);
    afterAll(async () => {
      for (const handle of handles) await driver.remove(handle);
      await driver.images?.remove(await idOf());
      await fixture.dispose();
    });

    test('starts sandboxes of its tenant with the files of the build', async () => {
      expect(await output(await start({}), 'cat /home/user/file; id -un')).toBe('of the build\nuser');
    });

    test('is a missing image for other tenants and for containers without accounts', async () => {
      const missing = { code: 'failed_precondition', message: expect.stringContaining('not on this machine') };
      await expect(start({ tenant: 'two' })).rejects.toMatchObject(missing);
      await expect(
        start({ hasAccounts: false, command: { kind: 'exec', argv: ['sleep', '9'] } }),
      ).rejects.toMatchObject(missing);
      const id = (await idOf()).replace('sha256:', '');
      const byId = { type: 'image', imageUrl: id.slice(0, 12), user: '' } as const;
      await expect(start({ tenant: 'two', rootfs: byId })).rejects.toMatchObject({ code: 'failed_precondition' });
    });

    test('has no name that a tenant can use', async () => {
      const id = (await idOf()).replace('sha256:', '');
      const names = [image, id, id.slice(0, 12), `sha256:${id}`];
      expect(await Promise.all(names.map(name => driver.images?.has(name)))).toEqual([false, false, false, false]);
      expect(await driver.images?.has(IMAGES.plain)).toBe(true);
    });

    test('stays while a sandbox runs from it, and is listed for its installation only', async () => {
      const handle = await start({});
      expect(await driver.images?.committed()).toEqual([{ id: await idOf(), name: image, build }]);
      expect(await driver.images?.remove(await idOf())).toBe(false);
      expect(await output(handle, 'cat /home/user/file')).toBe('of the build');
      const other = await fixtureOf(IMAGES.plain);
      expect(await other.driver().images?.committed()).toEqual([]);
      await other.dispose();
    });
  });

  describe.each([
    ['an image of Debian', IMAGES.python, 1001],
    ['an image with one static program', IMAGES.plain, 1000],
  ])('a container with accounts of %s', (_title, image, uid) => {
    let fixture: AccountsFixture;
    let driver: SandboxDriver;
    let handle: SandboxHandle;

    const run = async (user: string, script: string) => {
      const argv = ['/bin/sh', '-c', script];
      const request = { argv, user, workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100_000 };
      return await driver.exec(handle, request, AbortSignal.timeout(WAIT_MS));
    };
    const output = async (user: string, script: string) => (await run(user, script)).stdout.trim();

    beforeAll(async () => {
      fixture = await fixtureOf(image);
      driver = fixture.driver();
      handle = (await driver.start(fixture.spec(), AbortSignal.timeout(WAIT_MS))).handle;
    }, WAIT_MS);
    afterAll(async () => {
      if (handle !== undefined) await driver.remove(handle);
      await fixture.dispose();
    });

    test('commands run as user with the first free id by default, and as root on request', async () => {
      expect(await output('', 'id -u; pwd; echo $HOME $USER')).toBe(`${uid}\n/home/user\n/home/user user`);
      expect(await output('root', 'id -u; id -un')).toBe('0\nroot');
    });

    test('a command of an unknown user is refused', async () => {
      await expect(run('no-such-user', 'true')).rejects.toMatchObject({ code: 'unauthenticated' });
    });

    test('root has six capabilities, and user has none', async () => {
      const capabilities = 'while read -r line; do case $line in Cap*|NoNew*|Seccomp:*) echo "$line";; esac; done';
      const root = await output('root', `${capabilities} </proc/self/status`);
      for (const set of ['Prm', 'Eff', 'Bnd']) expect(root).toContain(`Cap${set}:\t00000000000000eb`);
      const user = await output('user', `${capabilities} </proc/self/status`);
      for (const set of ['Inh', 'Prm', 'Eff', 'Amb']) expect(user).toContain(`Cap${set}:\t0000000000000000`);
      for (const said of [root, user]) expect(said).toMatch(/NoNewPrivs:\t1\nSeccomp:\t2/);
    });

    test('neither the orders nor the secret of the runtime is visible inside', async () => {
      expect((await run('root', 'cat /run/rookery/orders.json')).returncode).toBe(1);
      expect(await output('root', 'cat /proc/1/environ 2>&1')).not.toContain('SECRET');
    });

    test('root inside cannot write to the directory that it shares with the service', async () => {
      expect((await run('root', 'echo x > /run/rookery/x')).stderr).toMatch(/read-only file system/i);
    });

    test('a process inside cannot use the sockets of the service', async () => {
      const connect = `import socket
for name in ('control', 'runtime'):
    s = socket.socket(socket.AF_UNIX)
    s.connect('/run/rookery/%s.sock' % name)
    print(repr(s.recv(10)))`;
      if (image !== IMAGES.python) return;
      expect(await output('root', `python3 -c "${connect}"`)).toBe("b''\nb''");
    });

    test('the sandbox survives the end of all processes that root inside can signal', async () => {
      // The process that serves the command ends too.
      await expect(run('root', 'kill -9 -1')).rejects.toMatchObject({ code: 'unavailable' });
      expect(await output('root', 'echo still here')).toBe('still here');
    });
  });
});

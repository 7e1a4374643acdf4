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

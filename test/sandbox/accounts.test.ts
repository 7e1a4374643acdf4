import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SandboxDriver, SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { describeWith } from '../probe.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 30_000;

// One account more than the user needs a service as root.
describeWith(['root', 'namespaces'], 'a process sandbox with accounts', () => {
  const fixture = new ProcessFixture();
  let driver: SandboxDriver;
  let handle: SandboxHandle;

  const specOf = (): SandboxSpec => ({
    ...fixture.spec(),
    hasAccounts: true,
    command: { kind: 'exec', argv: [] },
    workingDir: '/home/user',
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/home/user', E2B_SANDBOX: 'true' },
  });
  const start = async () => (await driver.start(specOf(), AbortSignal.timeout(WAIT_MS))).handle;
  const run = async (user: string, script: string, sandbox = handle) => {
    const argv = ['/bin/bash', '-l', '-c', script];
    const request = { argv, user, workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100_000 };
    return await driver.exec(sandbox, request, AbortSignal.timeout(WAIT_MS));
  };
  const output = async (user: string, script: string) => (await run(user, script)).stdout.trim();

  beforeAll(async () => {
    driver = fixture.driver();
    await available(driver);
    handle = await start();
  });
  afterAll(() => fixture.dispose());

  test('commands run as user by default, and as root on request', async () => {
    expect(await output('', 'id; pwd')).toBe('uid=1000(user) gid=1000(user) groups=1000(user)\n/home/user');
    expect(await output('user', 'whoami')).toBe('user');
    expect(await output('root', 'id')).toBe('uid=0(root) gid=0(root) groups=0(root)');
  });

  test('a command of an unknown user is refused', async () => {
    for (const name of ['nobody', 'daemon', 'root:root', '0', '1000'])
      await expect(run(name, 'true')).rejects.toMatchObject({ code: 'unauthenticated' });
  });

  test('user writes its home and /tmp, and root writes everywhere inside', async () => {
    expect(await output('user', 'echo x > ~/a && echo y > /tmp/b && stat -c %U:%G ~/a /tmp/b')).toBe(
      'user:user\nuser:user',
    );
    expect((await run('user', 'touch /etc/x')).returncode).toBe(1);
    const paths = '/workspace/f /etc/x /opt/x /root/x /srv-x /home/user/r /run/x /var/lib/x';
    const script = `mkdir /workspace; for path in ${paths}; do echo z > $path && stat -c %U $path; done`;
    expect(await output('root', script)).toBe(Array(8).fill('root').join('\n'));
    expect(await output('root', 'echo more >> /home/user/a; cat /home/user/a; chown root /home/user/a')).toBe(
      'x\nmore',
    );
    expect(await output('root', 'echo 127.0.0.9 other >> /etc/hosts; getent hosts other')).toMatch(/^127\.0\.0\.9/);
  });

  test('two sandboxes have their own /etc, homes and processes', async () => {
    await run('root', 'echo one > /etc/mine; echo one > /home/user/mine; echo one > /tmp/mine');
    const other = await start();
    const listing = await run('root', 'ls /etc/mine /home/user/mine /tmp/mine; ls /proc | grep -c "^[0-9]"', other);
    expect(listing.stdout).toMatch(/^[1-9]\n$/);
    await driver.remove(other);
  });

  test('root has six capabilities over the sandbox, and user has none', async () => {
    const capabilities = 'grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status';
    // CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID.
    const six = '00000000000000eb';
    const root = await output('root', capabilities);
    for (const set of ['Prm', 'Eff', 'Bnd']) expect(root).toContain(`Cap${set}:\t${six}`);
    for (const set of ['Inh', 'Amb']) expect(root).toContain(`Cap${set}:\t0000000000000000`);
    expect((await output('user', capabilities)).match(/^Cap\w+:\t0{16}$/gm)).toHaveLength(5);
    for (const user of ['root', 'user'])
      expect(await output(user, capabilities)).toMatch(/NoNewPrivs:\t1\nSeccomp:\t2/);
  });

  test('no id of the sandbox is an id of the host', async () => {
    for (const map of ['uid_map', 'gid_map']) {
      const lines = (await output('root', `cat /proc/self/${map}`)).split('\n').map(line => line.trim().split(/ +/));
      expect(lines.map(([inside]) => Number(inside))).toEqual([0, 1, 1000, 1001]);
      for (const [, outside, count] of lines) {
        expect(Number(outside)).toBeGreaterThanOrEqual(0x78000000);
        expect(Number(outside) + Number(count)).toBeLessThan(0x80000000);
      }
    }
  });

  test('root inside neither ends, reads nor joins the processes of the platform', async () => {
    const script = `
      for pid in 1 2; do
        kill -9 $pid 2>&1 | grep -o 'not permitted'
        for name in mem environ maps; do head -c 1 /proc/$pid/$name >/dev/null 2>&1 && echo read $name; done
        for name in root cwd exe ns/user ns/mnt; do readlink /proc/$pid/$name && echo $name; done
      done
      python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for number in (308, 272, 165, 101):
    print(libc.syscall(ctypes.c_long(number), ctypes.c_long(0x10000000), ctypes.c_long(0), ctypes.c_long(0)), ctypes.get_errno())
END`;
    const { stdout } = await run('root', script);
    if (process.arch === 'x64') expect(stdout).toBe(`${'not permitted\n'.repeat(2)}${'-1 1\n'.repeat(4)}`);
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    await run('root', 'kill -9 -1');
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
  });

  test('root inside has no rights over files of the host', async () => {
    const { stdout } = await run(
      'root',
      'touch /usr/x; chown user /usr/bin/env; chmod 777 /dev/null; stat -c %U /usr/bin/env /dev/null; cat /code/behaviours.py > /dev/null && echo x > /code/behaviours.py',
    );
    expect(stdout).toBe('nobody\nnobody\n');
  });

  test('user cannot change to root', async () => {
    const { stdout } = await run('user', 'su root -c id; python3 -c "import os; os.setuid(0)"; id -u');
    expect(stdout).toBe('1000\n');
  });
});

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxDriver, SandboxSpec } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { call, initOf } from '../suites/sandbox-driver.ts';
import { ProcessFixture } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

const WAIT_MS = 30_000;

interface Subject {
  readonly driver: SandboxDriver;
  readonly codePath: string;
  spec(changes?: Partial<SandboxSpec>): SandboxSpec;
  dispose(): Promise<void>;
}

/**
 * Script that takes objects until the limit and prints their number. On request it leaves a process that
 * keeps them.
 */
const TAKE = `
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def inotify(number):
    return libc.inotify_init1(0) >= 0
def signals(number):
    return libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) == 0
def queues(number):
    # Of 10 messages of 8192 bytes each, as far as the kernel lets everybody.
    return libc.mq_open(b'/rookery-test-%d-%d' % (os.getpid(), number), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
take, keeps, most = globals()[sys.argv[1]], sys.argv[2] == 'keep', int((sys.argv[3:] or ['100000'])[0])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(reader)
    nothing = os.open('/dev/null', os.O_RDWR)
    for number in (0, 1, 2): os.dup2(nothing, number)
    count = 0
    while count < most and take(count): count += 1
    for number in range(count if take is queues else 0): libc.mq_unlink(b'/rookery-test-%d-%d' % (os.getpid(), number))
    os.write(writer, b'%d' % count)
    os.close(writer)
    if keeps: signal.pause()
    os._exit(0)
os.close(writer)
print(os.read(reader, 20).decode())
`;

function describeLimits(name: string, create: () => Promise<Subject>): void {
  describe(name, { timeout: 60_000 }, () => {
    let subject: Subject;
    let driver: SandboxDriver;
    const channels: Channel[] = [];

    beforeAll(async () => {
      subject = await create();
      driver = subject.driver;
    });
    afterEach(async () => {
      for (const channel of channels.splice(0)) channel.close();
      for (const { handle } of await driver.list()) await driver.remove(handle);
    });
    afterAll(async () => await subject.dispose());

    const start = async (user: string, changes: Partial<SandboxSpec> = {}) => {
      const spec = subject.spec({ rootfs: { type: 'host', imageUrl: 'test', user }, ...changes });
      const { handle, endpoint, facts } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
      const channel = await Channel.open(endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
      channels.push(channel);
      const init = initOf(spec, subject.codePath, 'behaviours.attempt');
      expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
      const attempt = async (code: string) => String(await call(channel, { code }));
      const command = async (...argv: string[]) => {
        const order = { argv, workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100_000 };
        const { stdout, stderr } = await driver.exec(handle, order, AbortSignal.timeout(WAIT_MS));
        expect(stderr).toBe('');
        return stdout;
      };
      return {
        handle,
        facts,
        attempt,
        command,
        /** Returns how many objects of a kind the code, or a command, can take. */
        takeAsCode: async (kind: string, keep: string) =>
          Number(
            await attempt(
              `subprocess.run([sys.executable, '-c', ${JSON.stringify(TAKE)}, '${kind}', '${keep}'], stdout=subprocess.PIPE).stdout.decode()`,
            ),
          ),
        takeAsCommand: async (kind: string, keep: string) => Number(await command('python3', '-c', TAKE, kind, keep)),
      };
    };
    // Takes at most one object, because the host's programs need theirs meanwhile.
    const takeOnHost = (kind: string) =>
      Number(execFileSync('python3', ['-c', TAKE, kind, 'leave', '1'], { encoding: 'utf8' }));

    const kinds = ['inotify', 'signals', 'queues'];
    describe.each([
      ['root', ''],
      ['an ordinary user', 'daemon'],
    ])('sandboxes as %s', (_user, user) => {
      test.each(kinds)(
        'code that uses up what the kernel counts by user takes it from no neighbour and not from the host: %s',
        async kind => {
          const neighbour = await start(user);
          const hostile = await start(user);
          const taken = await hostile.takeAsCode(kind, 'keep');
          expect(taken).toBeGreaterThan(0);
          expect(await hostile.takeAsCode(kind, 'leave')).toBe(0);
          expect(await neighbour.takeAsCode(kind, 'keep')).toBe(taken);
          expect(await (await start(user)).takeAsCode(kind, 'leave')).toBe(taken);
          expect(takeOnHost(kind)).toBe(1);
        },
      );

      test.each(kinds)('a command counts with its sandbox and with no other: %s', async kind => {
        const hostile = await start(user);
        const taken = await hostile.takeAsCommand(kind, 'keep');
        expect(taken).toBeGreaterThan(0);
        expect(await hostile.takeAsCode(kind, 'leave')).toBe(0);
        expect(await hostile.takeAsCommand(kind, 'leave')).toBe(0);
        expect(await (await start(user)).takeAsCommand(kind, 'leave')).toBe(taken);
        expect(takeOnHost(kind)).toBe(1);
      });

      test('kernel limits per sandbox hold in every kind of network, and a removed sandbox frees its share', async () => {
        const alone = await start(user, { network: 'none' });
        const taken = await alone.takeAsCode('inotify', 'keep');
        expect(await alone.takeAsCommand('inotify', 'leave')).toBe(0);
        expect(await (await start(user)).takeAsCommand('inotify', 'keep')).toBe(taken);
        await driver.remove(alone.handle);
        expect(await (await start(user, { network: 'none' })).takeAsCommand('inotify', 'leave')).toBe(taken);
      });

      test('ids, files and processes of a sandbox equal those on the host', async () => {
        const workspace = mkdtempSync(join(tmpdir(), 'rookery-limits-'));
        chmodSync(workspace, 0o777);
        try {
          const mounts = [...subject.spec().mounts, { source: workspace, target: '/writable', readonly: false }];
          const { attempt, command, facts } = await start(user, { mounts });
          expect(facts.isolation).toContain('user_limits');
          const uid = user === '' ? 0 : 1;
          expect(await attempt("open('/writable/code', 'w').close()\nos.getresuid() + os.getresgid()")).toBe(
            `(${Array(6).fill(uid).join(', ')})`,
          );
          await command('touch', '/writable/command');
          for (const file of ['code', 'command'])
            expect(statSync(join(workspace, file))).toMatchObject({ uid, gid: uid });
          expect(await attempt("os.chown('/writable/code', 5, 5)")).toMatch(/^PermissionError/);
          const map = '0 0 4294967295';
          for (const file of ['uid_map', 'gid_map']) {
            expect(await attempt(`' '.join(open('/proc/self/${file}').read().split())`)).toBe(map);
            expect((await command('cat', `/proc/self/${file}`)).trim().split(/\s+/).join(' ')).toBe(map);
            expect(await attempt(`os.write(os.open('/proc/self/${file}', os.O_WRONLY), b'0 0 1')`)).toMatch(
              /^PermissionError/,
            );
          }
          // A command may inspect the process of the code, but not init.
          expect(await command('readlink', '/proc/2/fd/0')).toBe('/dev/null\n');
          expect(await attempt("os.readlink('/proc/1/ns/user')")).toMatch(/^PermissionError/);
          expect(await command('readlink', '/proc/self/ns/user')).toBe(
            `${await attempt("os.readlink('/proc/self/ns/user')")}\n`,
          );
        } finally {
          rmSync(workspace, { recursive: true, force: true });
        }
      });
    });
  });
}

describeWith(['root', 'namespaces'], 'kernel limits that count by user hold for each sandbox', () => {
  describeLimits('process', async () => {
    const fixture = new ProcessFixture();
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      spec: changes => fixture.spec(changes),
      dispose: () => fixture.dispose(),
    };
  });

  test('sandboxes run with a warning when the machine has no user namespaces left', { timeout: 120_000 }, () => {
    const directory = mkdtempSync(join(tmpdir(), 'rookery-limits-'));
    try {
      const program = join(directory, 'program.mts');
      const module = JSON.stringify(new URL('process-fixture.ts', import.meta.url).href);
      writeFileSync(
        program,
        `import { writeFileSync } from 'node:fs';
import { ProcessFixture } from ${module};
const fixture = new ProcessFixture();
try {
  const driver = fixture.driver({ spares: 1 });
  const start = changes => driver.start(fixture.spec(changes), AbortSignal.timeout(${WAIT_MS}));
  const tell = changes =>
    start(changes).then(({ facts }) => [facts.isolation.includes('user_limits'), ...facts.warnings], error => error.message)
      .then(said => console.log(JSON.stringify(said)));
  await tell();
  writeFileSync('/proc/sys/user/max_user_namespaces', '0');
  // Those that wait were made before.
  for (let count = 0; count < 4; count++) await start();
  await tell();
  await tell({ requireIsolation: true });
} finally {
  await fixture.dispose();
}
`,
      );
      // The command runs in a user namespace that maps all ids of the host, so that its limits affect no
      // other program. The parent outside writes the map.
      const wrapper = `
import os, sys
from rookery_zygote import syscalls
told, tell = os.pipe()
mapped, done = os.pipe()
child = os.fork()
if child == 0:
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    os.write(tell, b'.')
    os.read(mapped, 1)
    os.execv(sys.argv[1], sys.argv[1:])
os.read(told, 1)
for name in ('uid_map', 'gid_map'):
    with open('/proc/%d/%s' % (child, name), 'w') as ids:
        ids.write('0 0 4294967295')
os.write(done, b'.')
sys.exit(os.waitpid(child, 0)[1] != 0)
`;
      const command = ['-B', '-c', wrapper, process.execPath, '--import', 'tsx', program];
      const env = { ...process.env, PYTHONPATH: join(import.meta.dirname, '../../runtimes/python') };
      const said = execFileSync('python3', command, { env, encoding: 'utf8' });
      const sentence = /user_limits is not available here \([^)]+\): all sandboxes of one user share /;
      expect(
        said
          .trim()
          .split('\n')
          .map(line => JSON.parse(line)),
      ).toEqual([
        expect.arrayContaining([true]),
        expect.arrayContaining([false, expect.stringMatching(sentence)]),
        expect.stringMatching(/^isolation is required, and user_limits is not available here/),
      ]);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  test('sandboxes run with a warning when the layer user_limits is disabled', async () => {
    const fixture = new ProcessFixture({ disable: ['user_limits'] });
    try {
      const driver = fixture.driver();
      expect(await available(driver)).toMatchObject({
        available: true,
        degraded: [expect.stringContaining('user_limits is not available')],
      });
      const { facts } = await driver.start(fixture.spec(), AbortSignal.timeout(WAIT_MS));
      expect(facts.isolation).not.toContain('user_limits');
      expect(facts.isolation).toContain('mount');
      await expect(
        driver.start(fixture.spec({ requireIsolation: true }), AbortSignal.timeout(WAIT_MS)),
      ).rejects.toThrow('isolation is required, and this machine does not allow: user_limits');
    } finally {
      await fixture.dispose();
    }
  });
});

describeWith(
  ['root', 'namespaces', 'supervisor'],
  'kernel limits that count by user hold for each supervised sandbox',
  () => {
    describeLimits('supervisor', async () => {
      const supervisord = await TestSupervisord.start();
      const fixture = new SupervisorFixture(supervisord);
      return {
        driver: fixture.driver(),
        codePath: fixture.codePath,
        spec: changes => fixture.spec(changes),
        dispose: async () => {
          await fixture.dispose();
          await supervisord.dispose();
        },
      };
    });
  },
);

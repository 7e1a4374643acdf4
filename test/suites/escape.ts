import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmodSync, lstatSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxDriver, SandboxSpec, StartedSandbox } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { call, type DriverUnderTest, initOf, isError } from './sandbox-driver.ts';

/** A driver that isolates, and the facts of the machine that an attack needs. */
export interface EscapeSubject extends Pick<DriverUnderTest, 'driver' | 'codePath' | 'dispose'> {
  spec(changes?: Partial<SandboxSpec>): SandboxSpec;
  /** Data directory of the server. */
  readonly dataDir: string;
  /** Returns the host's process id of a process of the sandbox. */
  hostPid(started: StartedSandbox): number | Promise<number>;
}

/** Facts that hold for every sandbox of a driver, known before the first start. */
export interface EscapeFacts {
  /** Users that attack: their kind, and their name in a `rootfs`. */
  readonly users: readonly (readonly [who: 'root' | 'an ordinary user', user: string])[];
  /**
   * True if the sandbox uses the host's own files, read-only, and our init (process, supervisor). False for a
   * container of an image.
   */
  readonly onHostFiles: boolean;
  /**
   * True if the sandboxes have accounts of their own, whose names `users` has. Root has capabilities over the
   * sandbox only.
   */
  readonly hasAccounts?: true;
  /** True if root keeps its bounding set. No program can use it, because new privileges are forbidden. */
  readonly keepsBounding?: true;
  /** True if the engine owns the network, so that `network: none` is refused. */
  readonly refusesNoNetwork?: true;
  /** Timeout of `create`, in milliseconds. */
  readonly makeMs?: number;
}

const WAIT_MS = 90_000;
const CLONE_NEWUSER = 0x10000000;
/** CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID. */
const RIGHTS_OF_ACCOUNT_ROOT = '00000000000000eb';
const NO_RIGHTS = '0000000000000000';
/** A sandbox with accounts runs no code of its own. */
const WITH_ACCOUNTS: Partial<SandboxSpec> = {
  hasAccounts: true,
  command: { kind: 'exec', argv: [] },
  env: { PATH: '/usr/local/bin:/usr/bin:/bin' },
};
/** Answers each line with code by a line with the result, both in JSON. */
const ATTEMPTS = [
  'import json, sys',
  "sys.path.insert(0, '/code')",
  'import behaviours',
  'for line in sys.stdin: print(json.dumps(behaviours.attempt(json.loads(line), None)), flush=True)',
].join('\n');

/**
 * Tests how attacks on the host, on neighbours and on the platform end. docs/security-evidence.md cites these
 * tests.
 */
export function describeEscape(name: string, facts: EscapeFacts, create: () => Promise<EscapeSubject>): void {
  describe(`from inside ${name}`, { timeout: 120_000 }, () => {
    let subject: EscapeSubject;
    let driver: SandboxDriver;
    const channels = new Map<string, Channel>();
    /** Sandboxes that many attacks share. A failed attack changes nothing in them. */
    const kept = new Set<string>();

    beforeAll(async () => {
      subject = await create();
      driver = subject.driver;
      const probe = await available(driver);
      for (const layer of ['mount', 'pid', 'seccomp', 'no_new_privs', 'capabilities']) {
        // The probe omits a layer that the machine forbids. Without the layer the tests cannot pass.
        if (!probe.capabilities.isolation.includes(layer)) throw new Error(`this machine has no ${layer}`);
      }
    }, facts.makeMs);

    const endAll = async () => {
      for (const [id, channel] of channels) {
        if (kept.has(id)) continue;
        channel.close();
        channels.delete(id);
      }
      for (const { handle, instanceId } of await driver.list()) {
        if (!kept.has(instanceId)) await driver.remove(handle);
      }
    };
    afterEach(endAll);

    afterAll(async () => {
      await subject.dispose();
    });

    const start = async (changes: Partial<SandboxSpec> = {}) => {
      const spec = subject.spec(changes);
      const started = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
      const channel = await Channel.open(started.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
      channels.set(spec.instanceId, channel);
      const init = initOf(spec, subject.codePath, 'behaviours.attempt');
      expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
      return { spec, ...started, attempt: async (code: string) => String(await call(channel, { code })) };
    };

    /** Starts a sandbox with accounts, whose attempts are commands of `user`. */
    const startAccount = async (user: string, changes: Partial<SandboxSpec>) => {
      const spec = subject.spec({ ...WITH_ACCOUNTS, ...changes });
      const started = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
      const access = driver.access?.(started.handle);
      if (access === undefined) throw new Error('the driver gives no access');
      const { signal } = new AbortController();
      const program = { argv: ['python3', '-B', '-c', ATTEMPTS], workingDir: '', env: {}, user, stdin: true };
      const running = await access.startProcess({ ...program, terminal: null, timeLimitMs: 0 }, signal);
      running.ended.catch(() => undefined);
      const outputs = running.output[Symbol.asyncIterator]();
      const attempt = async (code: string) => {
        await access.writeInput(running.pid, Buffer.from(`${JSON.stringify({ code })}\n`), false, signal);
        let answer = '';
        while (!answer.endsWith('\n')) {
          const { done, value } = await outputs.next();
          if (done) throw new Error(`the program of ${user} has ended: ${answer}`);
          answer += value.data.toString();
        }
        // Traces of children that a call of a foreign architecture has killed precede the result.
        return String(JSON.parse(answer.trimEnd().split('\n').at(-1) ?? ''));
      };
      return { spec, ...started, attempt };
    };

    describe.each(facts.users)('code as %s', (who, user) => {
      const startAs = (changes: Partial<SandboxSpec> = {}) => {
        if (facts.hasAccounts) return startAccount(user, changes);
        const { rootfs } = subject.spec();
        return start({ rootfs: { ...rootfs, user }, ...changes });
      };
      /** The capabilities of programs of this user. */
      const rights = who === 'root' && facts.hasAccounts ? RIGHTS_OF_ACCOUNT_ROOT : NO_RIGHTS;

      let shared: Awaited<ReturnType<typeof startAs>>;
      beforeAll(async () => {
        shared = await startAs();
        kept.add(shared.spec.instanceId);
      });
      afterAll(async () => {
        kept.clear();
        await endAll();
      });

      test('a sandbox does not see the server’s data directory and its sockets', async () => {
        writeFileSync(join(subject.dataDir, 'database'), 'secret');
        const { attempt } = shared;
        expect(await attempt(`os.listdir('${subject.dataDir}')`)).toMatch(/^FileNotFoundError/);
        expect(await attempt(`open('${subject.dataDir}/database').read()`)).toMatch(/^FileNotFoundError/);
        expect(await attempt(`os.stat('${subject.dataDir}/run')`)).toMatch(/^FileNotFoundError/);
      });

      test.runIf(facts.onHostFiles)('the service’s sockets refuse a sandbox that reaches them', async () => {
        const instanceId = randomUUID();
        const platformMounts = [{ source: join(subject.dataDir, 'run'), target: '/stolen', readonly: true }];
        const { attempt } = await startAs({ instanceId, platformMounts });
        const replies = JSON.parse(await attempt(`knock('/stolen', '${instanceId}')`)) as object;
        // A user other than root of the host may not even search the directory.
        if (who === 'root' && !facts.hasAccounts) expect(Object.keys(replies)).toContain('init.sock');
        const unheard =
          /^$|^PermissionError|^ConnectionResetError|^BrokenPipeError|only the service itself may start a sandbox/;
        for (const reply of Object.values(replies)) expect(reply).toMatch(unheard);
      });

      // In a pod the container runtime of the cluster decides about the content of /proc.
      test.skipIf(facts.refusesNoNetwork)('the machine’s own files in /proc are hidden', async () => {
        const { attempt } = shared;
        const pages = ['kpagecgroup', 'kpagecount', 'kpageflags', 'pagetypeinfo', 'slabinfo', 'vmallocinfo'];
        for (const name of [...pages, 'kcore', 'keys', 'timer_list', 'sched_debug', 'iomem', 'zoneinfo', 'buddyinfo'])
          expect(await attempt(`open('/proc/${name}', 'rb').read(8)`)).toMatch(/^b''$|Error/);
      });

      test('a sandbox does not see the socket of the docker daemon', async () => {
        const { attempt } = shared;
        for (const path of ['/run/docker.sock', '/var/run/docker.sock', '/run/containerd', '/run/supervisor.sock']) {
          expect(await attempt(`os.stat('${path}')`)).toMatch(/^FileNotFoundError/);
        }
      });

      test('a sandbox does not see the files of another instance', async () => {
        await shared.attempt("open('/tmp/mine', 'w').write('secret')");
        const { attempt } = await startAs();
        expect(await attempt("'mine' in os.listdir('/tmp')")).toBe('False');
        const found = await attempt(
          "[name for top in ('/tmp', '/run', '/home') for _, _, names in os.walk(top) for name in names if name == 'mine']",
        );
        expect(found).toBe('[]');
      });

      test('a sandbox neither sees nor signals processes of others', async () => {
        const { attempt } = await startAs();
        const seen = await attempt("sorted(int(name) for name in os.listdir('/proc') if name.isdigit())");
        // A command is served by a process of its own.
        const own = facts.onHostFiles && !facts.hasAccounts;
        expect(JSON.parse(seen)).toEqual(own ? [1, 2] : expect.not.arrayContaining([process.pid]));
        // Process ids inside are separate from those of the host: all are low.
        expect(Math.max(...JSON.parse(seen))).toBeLessThan(200);
        for (const pid of [await subject.hostPid(shared), process.pid]) {
          if (pid >= 200) expect(await attempt(`os.kill(${pid}, 9)`)).toMatch(/^ProcessLookupError/);
        }
        expect(await driver.inspect(shared.handle)).toEqual({ state: 'running' });
      });

      test('a sandbox has no capability and cannot get one', async () => {
        const { attempt } = shared;
        // Rights and filters belong to each thread.
        const task = "'/proc/self/task/%s/status' % one";
        const threads = await attempt(
          `import json\njson.dumps([open(${task}).read() for one in os.listdir('/proc/self/task')])`,
        );
        const kept = who === 'root' && facts.keepsBounding === true;
        for (const status of JSON.parse(threads) as string[]) {
          for (const set of ['Inh', 'Amb']) expect(status).toContain(`Cap${set}:\t${NO_RIGHTS}`);
          for (const set of ['Prm', 'Eff', ...(kept ? [] : ['Bnd'])]) expect(status).toContain(`Cap${set}:\t${rights}`);
          expect(status).toContain('NoNewPrivs:\t1');
          expect(status).toContain('Seccomp:\t2');
        }
        if (who !== 'root') expect(await attempt('os.setuid(0)')).toMatch(/^PermissionError|\[Errno 22\]/);
      });

      test('programs in a sandbox have no capability', async () => {
        const { handle } = shared;
        const argv = ['sh', '-c', 'grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status'];
        const as = facts.hasAccounts ? { user } : {};
        const { stdout } = await driver.exec(handle, { ...TRUE, ...as, argv }, AbortSignal.timeout(WAIT_MS));
        const sets = who === 'root' && facts.keepsBounding === true ? 4 : 5;
        const found = stdout.match(/^Cap\w+:\t\w{16}$/gm)?.map(line => line.slice(-16));
        expect(found?.filter(set => set === rights || set === NO_RIGHTS).length).toBeGreaterThanOrEqual(sets);
        expect(stdout).toContain('NoNewPrivs:\t1');
        expect(stdout).toContain('Seccomp:\t2');
      });

      const calls: [call: string, code: string][] = [
        ['mount', "syscall(165, b'none', b'/tmp', b'tmpfs', 0, 0)"],
        ['umount2', "syscall(166, b'/proc', 2)"],
        ['pivot_root', "syscall(155, b'/tmp', b'/tmp')"],
        ['chroot', "os.chroot('/tmp')"],
        ['unshare of a user namespace', `syscall(272, ${CLONE_NEWUSER})`],
        ['clone into a user namespace', `syscall(56, ${CLONE_NEWUSER} | 17, 0, 0, 0, 0)`],
        ['setns', 'syscall(308, 0, 0)'],
        ['open_by_handle_at', 'syscall(304, -100, 0, 0)'],
        ['bpf', 'syscall(321, 0, 0, 0)'],
        ['perf_event_open', 'syscall(298, 0, 0, -1, -1, 0)'],
        ['keyctl', 'syscall(250, 0, -3, 0)'],
        ['userfaultfd', 'syscall(323, 0)'],
        ['init_module', "syscall(175, 0, 0, b'')"],
        ['reboot', 'syscall(169, 0, 0, 0, 0)'],
        ['sethostname', "syscall(170, b'x', 1)"],
        ['open_tree', "syscall(428, -100, b'/', 1)"],
        ['personality with executable memory', 'syscall(135, 0x400000)'],
        ['set_mempolicy', 'syscall(238, 0, 0, 0)'],
        ['move_pages of another process', 'syscall(279, 1, 0, 0, 0, 0, 0)'],
      ];
      test.each(calls)('the system call %s is refused', async (_call, code) => {
        if (process.arch !== 'x64') return;
        const { attempt } = shared;
        expect(await attempt(code)).toMatch(/^PermissionError/);
      });

      test('a sandbox cannot change settings of the machine', async () => {
        const { attempt } = shared;
        const refused = /Read-only|PermissionError|FileNotFoundError/;
        expect(await attempt("open('/proc/sys/kernel/hostname', 'w').write('x')")).toMatch(refused);
        expect(await attempt("open('/proc/sysrq-trigger', 'w').write('h')")).toMatch(refused);
        expect(await attempt("open('/sys/kernel/mm/transparent_hugepage/enabled', 'w')")).toMatch(refused);
        expect(await attempt("os.mknod('/tmp/disk', 0o60600, os.makedev(254, 0))")).toMatch(/^PermissionError/);
        expect(await attempt("open('/proc/kcore', 'rb').read(1)")).toMatch(/^b''$|Error/);
        expect(await attempt("open('/dev/mem', 'rb').read(1)")).toMatch(/Error/);
      });

      test('no environment contains the secret of the runtime', async () => {
        const { attempt, spec } = shared;
        expect(await attempt(`'${spec.secret}' in repr(os.environ)`)).toBe('False');
        expect(await attempt('[value for value in os.environ.values() if "secret" in value]')).toBe('[]');
      });

      test('a program of one instance cannot reach the runtime of another over its socket', async () => {
        if (shared.endpoint.kind !== 'unix') return;
        const { attempt } = await startAs();
        const connect = `socket.socket(socket.AF_UNIX).connect('${shared.endpoint.path}')`;
        expect(await attempt(connect)).toMatch(/^FileNotFoundError|^PermissionError|path too long/);
      });

      /**
       * Runs `body` with a world-writable directory of the host at /writable. Afterwards no file in it may
       * have a set-id bit.
       */
      const withWritable = async (body: (inside: Awaited<ReturnType<typeof start>>) => Promise<readonly string[]>) => {
        const workspace = mkdtempSync(join(tmpdir(), 'rookery-bits-'));
        chmodSync(workspace, 0o777);
        try {
          const mounts = [...subject.spec().mounts, { source: workspace, target: '/writable', readonly: false }];
          const made = await body(await startAs({ mounts }));
          for (const name of readdirSync(workspace)) {
            expect([name, lstatSync(join(workspace, name)).mode & 0o6000]).toEqual([name, 0]);
          }
          expect(readdirSync(workspace)).toEqual(expect.arrayContaining([...made]));
        } finally {
          rmSync(workspace, { recursive: true });
        }
      };

      test('a sandbox cannot set a set-user-ID or set-group-ID bit on a file that the host sees', async () => {
        await withWritable(async ({ attempt }) => {
          const made = "open('/writable/a', 'w').close()\nos.chmod('/writable/a', 0o1755)\nos.listdir('/writable')";
          expect(await attempt(made)).toContain('a');
          const refused = /^PermissionError/;
          for (const mode of ['0o4755', '0o2755', '0o6711', '0o4000']) {
            expect(await attempt(`os.chmod('/writable/a', ${mode})`)).toMatch(refused);
            expect(await attempt(`os.fchmod(os.open('/writable/a', os.O_RDWR), ${mode})`)).toMatch(refused);
            expect(await attempt(`os.chmod('a', ${mode}, dir_fd=os.open('/writable', 0))`)).toMatch(refused);
            expect(await attempt(`os.open('/writable/b', os.O_CREAT | os.O_WRONLY, ${mode})`)).toMatch(refused);
            expect(await attempt(`os.open('/writable', os.O_TMPFILE | os.O_WRONLY, ${mode})`)).toMatch(refused);
            expect(await attempt(`os.mknod('/writable/c', 0o100000 | ${mode})`)).toMatch(refused);
          }
          // An old libseccomp does not know the newest calls and reports them as absent.
          const refusedOrAbsent = /^PermissionError|^OSError: \[Errno 38\]/;
          if (process.arch === 'x64') {
            for (const code of [
              "syscall(437, -100, b'/writable/d', struct.pack('=QQQ', 0o101, 0o4755, 0), 24)",
              "syscall(452, -100, b'/writable/a', 0o4755, 0)",
              "syscall(90, b'/writable/a', 0o4755)",
              "syscall(90, b'/writable/a', 0x7fffffff00000000 | 0o2755)",
              "syscall(2, b'/writable/d', 0o101, 0o4755)",
              "syscall(85, b'/writable/d', 0o4755)",
              "syscall(133, b'/writable/d', 0o102755, 0)",
              'syscall(425, 1, bytes(120))',
            ]) {
              expect([code, await attempt(`import struct\n${code}`)]).toEqual([
                code,
                expect.stringMatching(refusedOrAbsent),
              ]);
            }
          }
          expect(await attempt("os.setxattr('/writable/a', 'security.capability', b'\\1' * 20)")).toMatch(/Error/);
          return ['a'];
        });
      });

      test('a sandbox cannot set such a bit through calls of another architecture', async () => {
        if (process.arch !== 'x64') return;
        await withWritable(async ({ attempt }) => {
          // Each call runs in a child, because the kernel may kill the caller. Tests chmod of x32, and chmod
          // of 32-bit programs by machine code.
          const inChild = (code: string) =>
            attempt(
              `pid = os.fork()\nif pid == 0:\n    try:\n        ${code}\n    finally: os._exit(0)\nos.waitpid(pid, 0)[1] >= 0`,
            );
          await attempt("open('/writable/a', 'w').close()\n0");
          expect(await inChild("syscall(0x40000000 + 90, b'/writable/a', 0o4755)")).toBe('True');
          const machineCode = [
            'import ctypes, mmap, struct',
            'held = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)',
            'at = ctypes.addressof(ctypes.c_char.from_buffer(held))',
            "held[:] = (b'\\x53\\xb8' + struct.pack('=I', 15) + b'\\xbb' + struct.pack('=I', at + 100) + b'\\xb9' + struct.pack('=I', 0o4755) + b'\\xcd\\x80\\x5b\\xc3').ljust(100, b'\\0') + b'/writable/a'.ljust(3996, b'\\0')",
            'ctypes.CFUNCTYPE(ctypes.c_int)(at)()',
          ].join('; ');
          expect(await inChild(machineCode)).toBe('True');
          return ['a'];
        });
      });

      test('commands, terminals and uploads of a sandbox cannot set such a bit', async () => {
        await withWritable(async ({ handle }) => {
          const script = (name: string) =>
            `cd /writable; cp /bin/sh ${name}; chmod 4755 ${name}; chmod u+s ${name}; install -m 6755 /bin/sh ${name}i; true`;
          const signal = AbortSignal.timeout(WAIT_MS);
          await driver.exec(handle, { ...TRUE, argv: ['sh', '-c', script('exec')] }, signal);
          const access = driver.access?.(handle);
          if (access === undefined) throw new Error('the driver gives no access');
          for (const [name, terminal] of [
            ['pipes', null],
            ['terminal', { columns: 80, rows: 24 }],
          ] as const) {
            const argv = ['sh', '-c', script(name)];
            const exec = await access.openExec({ argv, workingDir: '', env: {}, terminal }, signal);
            for (const output of [exec.stdout, exec.stderr]) output.resume();
            await exec.ended;
          }
          for (const mode of [0o4755, 0o2755, 0o6755]) {
            await access.writeFile(`/writable/file-${mode}`, { mode }, Readable.from([Buffer.from('x')]), signal);
          }
          return ['exec', 'pipes', 'terminal', `file-${0o4755}`, `file-${0o2755}`, `file-${0o6755}`];
        });
      });

      test('a sandbox cannot lower the limits of its init, only its own', async () => {
        const started = await startAs();
        const { attempt } = started;
        const lower = (pid: number, limit: string) =>
          attempt(`import resource\nresource.prlimit(${pid}, resource.RLIMIT_${limit}, (0, 0))`);
        for (const limit of ['NOFILE', 'FSIZE', 'CPU', 'AS', 'NPROC', 'DATA']) {
          expect(await lower(1, limit)).toMatch(/^PermissionError/);
        }
        expect(await lower(0, 'CORE')).toBe('(0, 0)');
        expect(await attempt('import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (50, 50))')).toBe('None');
        expect(await driver.exec(started.handle, TRUE, AbortSignal.timeout(WAIT_MS))).toMatchObject({
          returncode: 0,
        });
      });

      test.each([
        ['ptrace', 'syscall(101, 0, 0, 0, 0)'],
        ['process_vm_readv', 'syscall(310, 1, 0, 0, 0, 0, 0)'],
      ])('the system call %s is refused', async (_call, code) => {
        if (process.arch !== 'x64') return;
        const { attempt } = shared;
        expect(await attempt(code)).toMatch(/^PermissionError/);
      });

      test.each([
        ['clone3', 'syscall(435, 0, 0)'],
        ['io_uring_setup', 'syscall(425, 1, 0)'],
      ])('the system call %s does not exist, so that libraries use an alternative', async (_call, code) => {
        if (process.arch !== 'x64') return;
        const { attempt } = shared;
        expect(await attempt(code)).toMatch(/^OSError: \[Errno 38\]/);
      });

      test('a sandbox cannot make sockets of families that only the kernel or the machine needs', async () => {
        const { attempt } = shared;
        // The numbers are AF_PACKET, AF_ALG, AF_VSOCK and AF_XDP.
        for (const family of [17, 38, 40, 44]) {
          expect(await attempt(`socket.socket(${family}, socket.SOCK_DGRAM, 0)`)).toMatch(/^(PermissionError|OSError)/);
        }
        expect(await attempt('socket.socketpair() and socket.socket(10).family')).toMatch(/AF_INET6|^10$/);
      });

      if (!facts.onHostFiles) return;
      test.each([
        '/etc/shadow',
        '/etc/gshadow',
        '/etc/sudoers',
        '/etc/ssh',
        '/etc/ssl/private',
        '/root/.ssh',
        '/sys/kernel',
      ])('a sandbox does not see the host’s %s', async path => {
        const { attempt } = shared;
        expect(await attempt(`os.stat('${path}')`)).toMatch(/^FileNotFoundError|^PermissionError/);
      });

      test('a sandbox cannot kill, stop, trace or read its init', async () => {
        const started = await startAs();
        const { attempt } = started;
        for (const signal of [9, 15, 19]) await attempt(`os.kill(1, ${signal})`);
        for (const name of ['mem', 'environ', 'maps', 'auxv']) {
          expect(await attempt(`open('/proc/1/${name}', 'rb').read(1)`)).toMatch(/^PermissionError/);
        }
        for (const name of ['root', 'cwd', 'exe', 'fd/0', 'ns/mnt']) {
          expect(await attempt(`os.readlink('/proc/1/${name}')`)).toMatch(/^PermissionError/);
        }
        expect(await attempt('syscall(101, 16, 1, 0, 0)')).toMatch(/^PermissionError/);
        expect(await driver.inspect(started.handle)).toEqual({ state: 'running' });
        expect(await driver.exec(started.handle, TRUE, AbortSignal.timeout(WAIT_MS))).toMatchObject({
          returncode: 0,
        });
      });

      test('queued signals and message queues, which the kernel counts by user, are bounded', async () => {
        const { attempt } = shared;
        const limit = (name: string) => attempt(`__import__('resource').getrlimit(__import__('resource').${name})`);
        expect(await limit('RLIMIT_SIGPENDING')).toBe('(1024, 1024)');
        expect(await limit('RLIMIT_MSGQUEUE')).toBe('(409600, 409600)');
        const raise = "__import__('resource').setrlimit(__import__('resource').RLIMIT_SIGPENDING, (2048, 2048))";
        expect(await attempt(raise)).toMatch(/^(ValueError|PermissionError)/);
      });

      test('the host’s files cannot be written', async () => {
        const { attempt } = shared;
        expect(await attempt("os.chmod('/dev/null', 0)")).toMatch(/Read-only|PermissionError/);
        expect(await attempt("open('/usr/bin/rookery-test', 'w')")).toMatch(/Read-only|PermissionError/);
        // Root of a sandbox with accounts has an /etc of its own.
        if (who === 'root' && facts.hasAccounts) return;
        expect(await attempt("open('/etc/passwd', 'a')")).toMatch(/Read-only|PermissionError/);
        expect(await attempt("open('/etc/resolv.conf', 'a')")).toMatch(/Read-only|PermissionError/);
      });

      // The other two are about the process that runs the code of an instance.
      if (facts.hasAccounts) return;

      test('the environment, command line and descriptors of code contain nothing of the platform', async () => {
        const { attempt, spec } = await startAs();
        expect(await attempt("open('/proc/self/environ').read().strip('\\0')")).toBe('');
        expect((await attempt("open('/proc/self/cmdline').read()")).replaceAll('\0', '')).toBe(
          `rookery: ${spec.instanceId}`,
        );
        const links = await attempt(
          "[os.readlink('/proc/self/fd/' + name) for name in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + name)]",
        );
        expect(
          links.match(/'[^']*'/g)?.filter(link => !/^'(\/dev\/null|pipe:|socket:|anon_inode:|\/proc\/)/.test(link)),
        ).toEqual([]);
      });

      test('a sandbox’s stack holds nothing of the zygote', async () => {
        const { attempt } = await startAs();
        const code = 'f, names = sys._getframe(), []\nwhile f: names.append(f.f_code.co_filename); f = f.f_back\nnames';
        expect(await attempt(code)).not.toContain('rookery_zygote/zygote.py');
        expect(await attempt(code)).not.toContain('rookery_zygote/forking.py');
      });
    });

    // The rest does not depend on the accounts.
    if (facts.hasAccounts) return;
    if (facts.onHostFiles) {
      test('a process of the sandbox does not see the data of a neighbour’s request', async () => {
        // A zygote that read requests would keep them in its memory, which later forks of the zygote inherit.
        const marker = `neighbour-${subject.spec().secret}`;
        for (let turn = 0; turn < 3; turn++) await start({ env: { SECRET: `${marker}-${turn}` } });
        const { attempt } = await start();
        const code = [
          'found = 0',
          `parts = ['neighbour', '${marker.slice('neighbour-'.length)}']`,
          "needle = '-'.join(parts).encode()",
          "memory = open('/proc/self/mem', 'rb', 0)",
          "for line in open('/proc/self/maps').read().splitlines():",
          '    fields = line.split()',
          "    if fields[1][0] != 'r' or 'vvar' in line or 'vsyscall' in line: continue",
          "    low, high = (int(part, 16) for part in fields[0].split('-'))",
          '    memory.seek(low)',
          '    try: data = memory.read(high - low)',
          '    except OSError: continue',
          '    at = data.find(needle)',
          '    while at >= 0:',
          "        found += data[at + len(needle):at + len(needle) + 1] == b'-'",
          '        at = data.find(needle, at + 1)',
          'found',
        ].join('\n');
        expect(await attempt(code)).toBe('0');
      });
    }

    if (facts.refusesNoNetwork) {
      test('network none is refused', async () => {
        await expect(start({ network: 'none' })).rejects.toSatisfy(isError('failed_precondition', /network none/));
      });
    } else {
      test('a sandbox with network none reaches its own loopback and nothing else', async () => {
        const server = net
          .createServer(socket => socket.on('error', () => socket.destroy()).end('host'))
          .listen(0, '127.0.0.1');
        try {
          const { port } = await new Promise<AddressInfo>(resolve =>
            server.once('listening', () => resolve(server.address() as AddressInfo)),
          );
          const connect = `socket.create_connection(('127.0.0.1', ${port}), 5).recv(4)`;
          const alone = await start({ network: 'none' });
          expect(alone.facts.isolation).toContain('net');
          expect(await alone.attempt(connect)).toMatch(/^ConnectionRefusedError/);
          const own =
            "s = socket.socket()\ns.bind(('127.0.0.1', 0)); s.listen(1)\nsocket.create_connection(s.getsockname()) and 'up'";
          expect(await alone.attempt(own)).toBe('up');
          expect(await alone.attempt("socket.create_connection(('192.0.2.1', 80), 5)")).toMatch(
            /^OSError: \[Errno 101\]/,
          );
        } finally {
          server.close();
        }
      });
    }

    test.each([
      ['/etc'],
      ['//etc'],
      ['/./etc'],
      ['/etc/ssl'],
      ['/proc'],
      ['/sys'],
      ['/dev'],
      ['/boot'],
      ['/'],
      ['/run/docker'],
      ['/run/containerd'],
      ['/var/lib/docker'],
      ['/var/lib'],
      ['/run/user'],
    ])('a mount of %s is refused at mount time too', async source => {
      const mounts = [{ source, target: '/data', readonly: true }];
      await expect(driver.start(subject.spec({ mounts }), AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
        isError('failed_precondition', /^(unsafe mount source|mount source does not exist): /),
      );
    });

    test('a pipe, a socket and a device are refused as sources of mounts, without a hang', async () => {
      const directory = mkdtempSync(join(tmpdir(), 'rookery-escape-'));
      const server = net.createServer();
      try {
        execFileSync('mkfifo', [join(directory, 'pipe')]);
        await new Promise<void>(resolve => server.listen(join(directory, 'socket'), resolve));
        symlinkSync('/dev/null', join(directory, 'device'));
        for (const name of ['pipe', 'socket', 'device']) {
          const mounts = [{ source: join(directory, name), target: '/data', readonly: true }];
          await expect(driver.start(subject.spec({ mounts }), AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
            isError('failed_precondition', /^unsafe mount source: /),
          );
        }
      } finally {
        server.close();
        rmSync(directory, { recursive: true, force: true });
      }
    });

    test('a mount of the data directory, its content, its parent or the directory of the docker socket is refused', async () => {
      for (const source of [subject.dataDir, join(subject.dataDir, 'run'), join(subject.dataDir, '..'), '/run']) {
        const mounts = [{ source, target: '/data', readonly: true }];
        await expect(driver.start(subject.spec({ mounts }), AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
          isError('failed_precondition', /^unsafe mount source: /),
        );
      }
      expect(await driver.list()).toEqual([]);
    });
  });
}

const TRUE = { argv: ['true'], workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100_000 };

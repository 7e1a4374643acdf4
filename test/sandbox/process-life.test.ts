import { execFileSync } from 'node:child_process';
import {
  accessSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import { readHandle } from '../../src/sandbox/host/handle.ts';
import { isAlive } from '../../src/sandbox/host/kernel.ts';
import type { ProcessDriver } from '../../src/sandbox/process/driver.ts';
import { available } from '../parts/available.ts';
import { call, initOf, isError } from '../suites/sandbox-driver.ts';
import { ProcessFixture } from './process-fixture.ts';
import { commandLine, pidOf, pids, zygoteTitles } from './zygote-processes.ts';

const WAIT_MS = 30_000;
const MANY = 200;

/** Tests the parts that the driver contract does not cover: zygotes, inits, and residue on the machine. */
describe('the process driver', { timeout: 120_000 }, () => {
  let fixture: ProcessFixture;
  let driver: ProcessDriver;
  const channels: Channel[] = [];

  beforeAll(async () => {
    fixture = new ProcessFixture();
    driver = fixture.driver();
    await available(driver);
  });

  afterEach(async () => {
    for (const channel of channels.splice(0)) channel.close();
    for (const { handle } of await driver.list()) await driver.remove(handle);
  });

  afterAll(async () => {
    await fixture.dispose();
  });

  const startWith = async (entry: string, changes: Partial<SandboxSpec> = {}, under = driver) => {
    const spec = fixture.spec(changes);
    const started = await under.start(spec, AbortSignal.timeout(WAIT_MS));
    const channel = await Channel.open(started.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
    channels.push(channel);
    const init = initOf(spec, fixture.codePath, `behaviours.${entry}`);
    expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
    return { spec, channel, ...started };
  };

  const zygotePids = () => zygoteTitles(fixture.dataDir).flatMap(title => pidOf(title) ?? []);

  /** Starts sandboxes until a zygote runs: a waiting worker of a killed zygote serves one more start. */
  const runningZygote = async () =>
    await vi.waitFor(async () => {
      await startWith('echo');
      const [pid] = zygotePids();
      if (pid === undefined) throw new Error('no zygote runs');
      return pid;
    });

  test('instances continue when their zygote is killed: call, exec, logs, end and remove work', async () => {
    const one = await startWith('count');
    const other = await startWith('exit');
    for (const pid of zygotePids()) process.kill(pid, 'SIGKILL');
    expect(await call(one.channel, {})).toBe(1);
    expect(await driver.inspect(one.handle)).toEqual({ state: 'running' });
    expect(await driver.exec(one.handle, TRUE, AbortSignal.timeout(WAIT_MS))).toMatchObject({ returncode: 0 });
    const waiting = driver.wait(other.handle);
    await expect(call(other.channel, { code: 9 })).rejects.toThrow();
    expect(await waiting).toMatchObject({ code: 9 });
    await driver.stop(one.handle, 10_000);
    expect(await driver.wait(one.handle)).toMatchObject({ code: 0 });
    await driver.remove(one.handle);
    expect(await driver.inspect(one.handle)).toEqual({ state: 'gone' });
  });

  test('a remove answers only when no process, group or directory is left, also directly after a stop', async () => {
    const all = await Promise.all(Array.from({ length: 4 }, () => startWith('leave_children')));
    await Promise.all(
      all.map(async ({ handle, channel }, index) => {
        await call(channel, {});
        if (index > 0) await driver.stop(handle, index === 1 ? 0 : 10_000);
        await driver.remove(handle);
        const { init, directory, groups } = readHandle(handle);
        if (init === null) throw new Error('a sandbox that has started has an init');
        expect(isAlive(init)).toBe(false);
        expect([directory, ...Object.values(groups.paths)].filter(path => existsSync(path))).toEqual([]);
      }),
    );
    expect(await driver.list()).toEqual([]);
  });

  test('a killed zygote is replaced by a new one', async () => {
    const killed = await runningZygote();
    process.kill(killed, 'SIGKILL');
    const { channel } = await startWith('echo');
    expect(await call(channel, 1)).toBe(1);
    expect(await runningZygote()).not.toBe(killed);
  });

  test('the zygote of a server with a low limit of open files does not serve a server with a higher one', async () => {
    // Long enough for the next server to find the zygote.
    const idle = { zygoteIdleExitMs: 10_000 };
    const own = new ProcessFixture(idle);
    const file = join(own.dataDir, 'server.mts');
    writeFileSync(
      file,
      `import { ProcessFixture } from ${JSON.stringify(join(import.meta.dirname, 'process-fixture.ts'))};
       import { available } from ${JSON.stringify(join(ROOT, 'test/parts/available.ts'))};
       const options = ${JSON.stringify({ ...idle, dataDir: own.dataDir })};
       await available(new ProcessFixture(options).driver());
       process.kill(process.pid, 'SIGKILL');`,
    );
    const server = ['prlimit', '--nofile=1000:1000', process.execPath, '--import', 'tsx', file];
    expect(() => execFileSync('/usr/bin/env', server, { cwd: ROOT, stdio: 'pipe' })).toThrow();
    try {
      const lock = readdirSync(join(own.dataDir, 'run')).find(name => name.endsWith('.lock')) ?? '';
      const version = /^py(3\.\d+)-/.exec(lock)?.[1] ?? '';
      const next = own.driver();
      const spec = own.spec({ command: { kind: 'python', version } });
      const { handle } = await next.start(spec, AbortSignal.timeout(WAIT_MS));
      const argv = ['sh', '-c', 'ulimit -n'];
      const asked = { argv, workingDir: '/', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100 };
      const { stdout } = await next.exec(handle, asked, AbortSignal.timeout(WAIT_MS));
      expect(Number(stdout)).toBe(spec.maxOpenFiles);
    } finally {
      await own.dispose();
    }
  });

  test('an init that is killed ends its whole sandbox, and the exit is reported', async () => {
    const { handle, channel } = await startWith('leave_children');
    await call(channel, {});
    const waiting = driver.wait(handle);
    process.kill(handle.data.pid as number, 'SIGKILL');
    const exit = await waiting;
    expect(exit).toMatchObject({ code: null, signal: 'SIGKILL', oomKilled: false });
    expect(await driver.inspect(handle)).toEqual({ state: 'exited', exit });
    expect(processesIn(handle)).toEqual([]);
  });

  test('a followed log ends when init is killed', async () => {
    const { handle, channel } = await startWith('print_lines');
    await call(channel, { from: 0, to: 1 });
    const lines = driver.logs(handle, { tail: null, sinceMs: null, follow: true }, AbortSignal.timeout(WAIT_MS));
    let text = '';
    for await (const chunk of lines) {
      text += chunk.toString();
      process.kill(handle.data.pid as number, 'SIGKILL');
    }
    expect(text).toBe('line 0\n');
  });

  test('a followed log without earlier lines has every line that is printed after it was opened', async () => {
    const { handle, channel } = await startWith('print_lines');
    await call(channel, { from: 0, to: 2 });
    const lines = driver.logs(handle, { tail: 0, sinceMs: null, follow: true }, AbortSignal.timeout(WAIT_MS));
    // The lines before may reach the file late.
    await expect.poll(() => logText(driver, handle), { timeout: WAIT_MS }).toBe('line 0\nline 1\n');
    await lines.open?.();
    await call(channel, { from: 2, to: 3 });
    await driver.stop(handle, 10_000);
    const chunks: Buffer[] = [];
    for await (const chunk of lines) chunks.push(Buffer.from(chunk));
    expect(Buffer.concat(chunks).toString()).toBe('line 2\n');
  });

  test('zygotes end without residue when their server ends cleanly', async () => {
    const own = new ProcessFixture();
    const next = own.driver();
    await startWith('echo', {}, next).then(({ handle }) => next.remove(handle));
    await next.close();
    const left = ['instances', 'root', 'spares'];
    // Removal has a time limit, which a busy machine may exceed.
    await expect.poll(() => readdirSync(join(own.dataDir, 'run')).sort(), { timeout: WAIT_MS }).toEqual(left);
    for (const name of left) expect(readdirSync(join(own.dataDir, 'run', name))).toEqual([]);
    await own.dispose();
  });

  test('a driver that closes waits for its starts, which leave no residue, and begins no further start', async () => {
    const own = new ProcessFixture();
    const driver = own.driver();
    const starts = [1, 2, 3].map(() => driver.start(own.spec(), AbortSignal.timeout(WAIT_MS)));
    let over = 0;
    for (const start of starts) void start.catch(() => undefined).finally(() => (over += 1));
    await driver.close();
    expect(over).toBe(3);
    await expect(driver.start(own.spec(), AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
      isError('unavailable', /^the process driver is closed$/),
    );
    const instances = join(own.dataDir, 'run/instances');
    expect(existsSync(instances) ? readdirSync(instances) : []).toEqual([]);
    await own.dispose();
  });

  test('a removed data directory is not created again by a driver or a living zygote', async () => {
    const own = new ProcessFixture();
    rmSync(own.dataDir, { recursive: true });
    const probe = await own.driver().probe();
    expect(probe).toMatchObject({ available: false, reason: expect.stringContaining('no such file or directory') });
    await own.dispose();
    expect(existsSync(own.dataDir)).toBe(false);
  });

  test('files of dead zygotes are removed by the next zygote, and those of a live one stay', async () => {
    const own = new ProcessFixture();
    const run = join(own.dataDir, 'run');
    const driver = own.driver();
    await startWith('echo', {}, driver).then(({ handle }) => driver.remove(handle));
    const living = readdirSync(run).filter(name => /^(etc-)?py3\.11-/.test(name));
    const old = [
      ...['py3.11-0ldver51.lock', 'py3.11-0ldver51.log', 'py3.6-0ldver51.lock', 'py3.6-0ldver51.start.sock'],
      ...['program3.12-0ldver51.lock', 'program3.12-0ldver51.control.sock'],
    ];
    const oldTemplate = 'etc-program3.12-0ldver51';
    mkdirSync(join(run, oldTemplate));
    const anHourAgo = Date.now() / 1000 - 3600;
    for (const name of [...old, ...living.filter(name => name.endsWith('.log'))]) {
      writeFileSync(join(run, name), '', { flag: 'a' });
      utimesSync(join(run, name), anHourAgo, anHourAgo);
    }
    // A driver with other settings has its own zygote.
    const next = own.driver({ spares: 1 });
    await startWith('echo', {}, next).then(({ handle }) => next.remove(handle));
    expect(readdirSync(run).filter(name => [...old, oldTemplate].includes(name))).toEqual([]);
    expect(readdirSync(run)).toEqual(expect.arrayContaining(living));
    await own.dispose();
  });

  test('a zygote with an instance outlives a clean end and ends with its last instance', async () => {
    const own = new ProcessFixture();
    const first = own.driver();
    const { handle, spec } = await startWith('count', {}, first);
    await first.close();
    const lock = readdirSync(join(own.dataDir, 'run')).find(name => name.endsWith('.lock')) ?? '';
    const title = `rookery: zygote ${lock.slice(0, -'.lock'.length)}`;
    expect(pidOf(title)).not.toBeNull();
    const second = own.driver();
    const channel = await Channel.open(handle.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
    channels.push(channel);
    expect(await call(channel, {})).toBe(1);
    await second.remove(handle);
    await expect.poll(() => pidOf(title), { timeout: WAIT_MS }).toBeNull();
    await second.close();
    await own.dispose();
  });

  test('a zygote whose server was killed ends after its idle time', async () => {
    const own = new ProcessFixture({ zygoteIdleExitMs: 1_000 });
    const script = `
      import { ProcessFixture } from ${JSON.stringify(join(import.meta.dirname, 'process-fixture.ts'))};
      import { available } from ${JSON.stringify(join(ROOT, 'test/parts/available.ts'))};
      import { ProcessDriver } from ${JSON.stringify(join(import.meta.dirname, '../../src/sandbox/process/driver.ts'))};
      const silent = () => undefined;
      const logger = { trace: silent, debug: silent, info: silent, warn: silent, error: silent, fatal: silent, child: () => logger };
      const driver = new ProcessDriver({
        environment: process.env,
        dataDir: ${JSON.stringify(own.dataDir)}, mountPolicy: { closed: ['/x', '/y'], allow: null }, logger, zygoteIdleExitMs: 1_000, spares: 1,
      });
      await available(driver);
      process.kill(process.pid, 'SIGKILL');
    `;
    const file = join(own.dataDir, 'server.mts');
    writeFileSync(file, script);
    const root = join(import.meta.dirname, '../..');
    expect(() => execFileSync(process.execPath, ['--import', 'tsx', file], { cwd: root, stdio: 'pipe' })).toThrow();
    const lock = readdirSync(join(own.dataDir, 'run')).find(name => name.endsWith('.lock')) ?? '';
    expect(lock).not.toBe('');
    await expect
      .poll(() => pidOf(`rookery: zygote ${lock.slice(0, -'.lock'.length)}`), { timeout: WAIT_MS })
      .toBeNull();
    await own.dispose();
  });

  test('a missing interpreter fails the start with the paths that were searched', async () => {
    const spec = fixture.spec({ command: { kind: 'python', version: '3.99' } });
    await expect(driver.start(spec, AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
      isError('failed_precondition', /^invalid function: runtime python3\.99 is not available: /),
    );
  });

  test('an interpreter whose version differs from its name is not used', async () => {
    const own = new ProcessFixture({ pythons: { '3.98': '/usr/bin/python3' } });
    const next = own.driver();
    const spec = own.spec({ command: { kind: 'python', version: '3.98' } });
    await expect(next.start(spec, AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
      isError('failed_precondition', /\/usr\/bin\/python3: it is Python 3\.\d+$/),
    );
    await own.dispose();
  });

  /**
   * Runs `check` with a zygote that kills one of its processes once, at the place where `change` inserts the
   * kill.
   */
  const withKilled = async (
    file: string,
    change: (source: string, killOnce: (pid: string) => string) => string,
    check: (own: ProcessFixture, isKilled: () => boolean) => Promise<void>,
  ) => {
    const pythonDir = mkdtempSync(join(tmpdir(), 'rookery-python-'));
    for (const name of ['rookery_zygote', 'rookery_runtime']) {
      cpSync(join(ROOT, 'runtimes/python', name), join(pythonDir, name), { recursive: true });
    }
    const source = join(pythonDir, 'rookery_zygote', file);
    const killed = join(pythonDir, 'killed');
    // Two processes may get here at once. A late one is already in the root of its sandbox and cannot make
    // the directory, so its start continues. The script waits for the kill to take effect. Until then the
    // process accepts orders, and a start would succeed.
    const program = [
      'import os',
      'try:',
      `    os.mkdir(${JSON.stringify(killed)})`,
      'except OSError:',
      '    pass',
      'else:',
      '    os.kill(pid, 9)',
      "    while open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[0] != 'Z':",
      '        pass',
    ].join('\n');
    const killOnce = (pid: string) => `exec(${JSON.stringify(program)}, {'pid': ${pid}})`;
    writeFileSync(source, change(readFileSync(source, 'utf8'), killOnce));
    const own = new ProcessFixture({ pythonDir });
    try {
      await check(own, () => existsSync(killed));
    } finally {
      await own.dispose();
      rmSync(pythonDir, { recursive: true, force: true });
    }
  };

  const ITSELF = `__import__('os').getpid()`;

  test.each<[string, string, (source: string, killOnce: (pid: string) => string) => string]>([
    ['a zygote before it serves', '__main__.py', (source, killOnce) => `${killOnce(ITSELF)}\n${source}`],
    [
      'a zygote directly after its hand-over of the start',
      'zygote.py',
      (source, killOnce) => source.replace(/^( *)(hand_over\(chosen\.control, .*\))$/m, `$1$2\n$1${killOnce(ITSELF)}`),
    ],
    [
      'a user’s process before it has its orders',
      'user_process.py',
      // The process was just forked, and its worker may not be ready yet.
      (source, killOnce) => source.replace(/^( *)(rookery_runtime\.after_fork\(\))$/m, `$1${killOnce(ITSELF)}\n$1$2`),
    ],
    [
      'a user’s process while its worker waits',
      'zygote.py',
      // The process is the only child of the first process, which reports it as ready.
      (source, killOnce) =>
        source.replace(
          /^( *)(one\.pid = message\["ready"\])$/m,
          `$1$2\n$1if not one.handed_over: ${killOnce('process.descendants(one.pid)[0]')}`,
        ),
    ],
  ])('a start continues with another process after the kill of %s', async (_, file, change) => {
    await withKilled(file, change, async (own, isKilled) => {
      const start = async () => {
        const { handle } = await own.driver().start(own.spec(), AbortSignal.timeout(WAIT_MS));
        return await own.driver().inspect(handle);
      };
      const first = await start();
      // If the orders arrived before the kill, the start succeeded and the driver reports the end.
      if (first.state === 'exited') expect(first.exit).toMatchObject({ signal: 'SIGKILL', oomKilled: false });
      else expect(first).toEqual({ state: 'running' });
      // A waiting worker serves the next start.
      await expect.poll(isKilled, { timeout: WAIT_MS }).toBe(true);
      expect(await start()).toEqual({ state: 'running' });
    });
  });

  test('a start fails without a retry or residue when its worker is killed after it took its directory', async () => {
    // The user's process stops reading. The orders exceed the buffer, so the worker blocks until it is
    // killed.
    const hold = (source: string) =>
      source
        .replace(
          /^( *)(one\.pid = message\["ready"\])$/m,
          '$1$2\n$1if not hasattr(self, "killed"): os.kill(process.descendants(one.pid)[0], signal.SIGSTOP)',
        )
        .replace(
          /^( *)(hand_over\(chosen\.control, .*\))$/m,
          [
            '$1$2',
            '$1if not hasattr(self, "killed"):',
            '$1    while chosen.pid is None: self._hear_worker(chosen)',
            '$1    while not os.listdir(self._plan.instances): pass',
            '$1    self.killed = chosen.pid',
            '$1    os.kill(chosen.pid, signal.SIGKILL)',
            '$1    for each in self._workers.values():',
            '$1        if each is not chosen and each.pid is not None: os.kill(process.descendants(each.pid)[0], signal.SIGCONT)',
          ].join('\n'),
        );
    await withKilled('zygote.py', hold, async own => {
      const driver = own.driver();
      const spec = own.spec();
      const env = { ...spec.env, LARGE: 'x'.repeat(4 * 1024 * 1024) };
      await expect(driver.start({ ...spec, env }, AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
        isError('unavailable', /ended before it had answered its start$/),
      );
      expect(await driver.list()).toEqual([]);
      const { handle } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
      expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    });
  });

  test('a start that a killed zygote has not accepted continues with a new zygote', async () => {
    const pid = await runningZygote();
    process.kill(pid, 'SIGSTOP');
    const spec = fixture.spec();
    const starting = driver.start(spec, AbortSignal.timeout(WAIT_MS));
    process.kill(pid, 'SIGKILL');
    const { handle } = await starting;
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    expect(zygotePids()).not.toContain(pid);
  });

  test('control groups that a killed zygote’s workers leave are removed when the server stops', async () => {
    const own = new ProcessFixture();
    const first = own.driver();
    await available(first);
    const lock = readdirSync(join(own.dataDir, 'run')).find(name => name.endsWith('.lock')) ?? '';
    const zygote = lock.slice(0, -'.lock'.length);
    const pid = pidOf(`rookery: zygote ${zygote}`);
    if (pid === null) throw new Error('no zygote runs');
    const groupsOf = () =>
      groupParents().flatMap(parent => readdirSync(parent).filter(name => isOf(name, zygote, pid)));
    if (groupParents().length > 0) await expect.poll(groupsOf, { timeout: WAIT_MS }).not.toEqual([]);
    process.kill(pid, 'SIGKILL');
    // The test checks the process and not its title, which changes first. The server must have seen the
    // closed connections.
    await expect.poll(() => existsSync(`/proc/${pid}`), { timeout: WAIT_MS }).toBe(false);
    await first.close();
    expect(groupsOf()).toEqual([]);
    await own.dispose();
  });

  test.runIf(process.getuid?.() === 0)(
    'the exit of an instance is known although the disk was full and no service was running',
    async () => {
      const disk = mkdtempSync(join(tmpdir(), 'rookery-full-'));
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk]);
      try {
        const own = new ProcessFixture({ dataDir: disk });
        const first = own.driver();
        const { channel, handle } = await startWith('exit', {}, first);
        await first.close();
        expect(() => {
          for (let part = 0; ; part++) writeFileSync(join(disk, `filler-${part}`), Buffer.alloc(4096));
        }).toThrow('ENOSPC');
        await call(channel, { code: 3 }).catch(() => undefined);
        const second = own.driver();
        await expect
          .poll(() => second.inspect(handle), { timeout: WAIT_MS })
          .toMatchObject({
            state: 'exited',
            exit: { code: 3, signal: null },
          });
        execFileSync('sh', ['-c', 'rm -f filler-*'], { cwd: disk });
        await own.dispose().catch(() => undefined);
      } finally {
        execFileSync('umount', ['-l', disk]);
        rmSync(disk, { recursive: true });
      }
    },
  );

  test('a sandbox whose state cannot be read now does not count as dead: its files and its process stay', async () => {
    const { handle } = await startWith('echo');
    const directory = join(fixture.dataDir, 'run/instances', handle.instanceId);
    // The path exists, and no user can read it as a file.
    mkdirSync(join(directory, 'exit.json'));
    await expect(driver.inspect(handle)).rejects.toSatisfy(isError('unavailable', /exit\.json cannot be read/));
    await expect(driver.list()).rejects.toSatisfy(isError('unavailable', /exit\.json cannot be read/));
    rmSync(join(directory, 'exit.json'), { recursive: true });
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    // A file that a full disk has truncated gives no information.
    writeFileSync(join(directory, 'exit.json'), '{"code"');
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
  });

  test('a program that speaks the protocol gets its socket as a descriptor, as a path and its secret', async () => {
    const runtime = join(import.meta.dirname, '../../runtimes/python');
    const code = [
      'import os, socket, sys',
      `sys.path.insert(0, ${JSON.stringify(runtime)})`,
      'assert os.stat(os.environ["ROOKERY_RUNTIME_SOCKET"])',
      'import rookery_runtime',
      'listener = socket.socket(fileno=int(os.environ["ROOKERY_RUNTIME_FD"]))',
      'rookery_runtime.serve(listener, os.environ.pop("ROOKERY_RUNTIME_SECRET"))',
    ].join('\n');
    const command = { kind: 'exec', argv: ['/usr/bin/python3', '-c', code] } as const;
    for (const user of ['', 'daemon']) {
      const { channel, handle } = await startWith('process', {
        command,
        rootfs: { type: 'host', imageUrl: 'test', user },
      });
      expect(await call(channel, {})).toMatchObject({ noNewPrivs: '1', umask: 0o022 });
      await driver.stop(handle, 10_000);
      expect(await driver.wait(handle)).toMatchObject({ code: 0 });
    }
  });

  test('a program may listen on the path itself', async () => {
    const runtime = join(import.meta.dirname, '../../runtimes/python');
    const code = [
      'import os, socket, sys',
      `sys.path.insert(0, ${JSON.stringify(runtime)})`,
      'os.close(int(os.environ["ROOKERY_RUNTIME_FD"]))',
      'path = os.environ["ROOKERY_RUNTIME_SOCKET"]',
      'os.unlink(path)',
      'listener = socket.socket(socket.AF_UNIX)',
      'listener.bind(path)',
      'listener.listen(8)',
      'print("listening", flush=True)',
      'import rookery_runtime',
      'rookery_runtime.serve(listener, os.environ.pop("ROOKERY_RUNTIME_SECRET"))',
    ].join('\n');
    const spec = fixture.spec({
      command: { kind: 'exec', argv: ['/usr/bin/python3', '-c', code] },
      rootfs: { type: 'host', imageUrl: 'test', user: 'daemon' },
    });
    const { endpoint, handle } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
    await expect.poll(() => logText(driver, handle), { timeout: WAIT_MS }).toBe('listening\n');
    const channel = await Channel.open(endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
    channels.push(channel);
    expect(channel.hello.version).toBe(1);
    await driver.remove(handle);
  });

  test('a missing program ends with exit code 127, and the log names it', async () => {
    const spec = fixture.spec({ command: { kind: 'exec', argv: ['/no/such/program'] } });
    const { handle } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
    expect(await driver.wait(handle)).toMatchObject({ code: 127 });
    expect(await logText(driver, handle)).toBe('cannot run /no/such/program: No such file or directory\n');
  });

  test('endless output is cut to its newest part and fills only the memory of its own instance', async () => {
    const { channel, handle } = await startWith('flood', { memoryMb: 64 });
    expect(await call(channel, { megabytes: 100 })).toBe('printed');
    await driver.stop(handle, 10_000);
    const directory = handle.data.directory as string;
    const sizes = readdirSync(directory)
      .filter(name => name.startsWith('log'))
      .map(name => statSync(join(directory, name)).size);
    expect(sizes.length).toBe(3);
    for (const size of sizes) expect(size).toBeLessThan(11 * 1024 * 1024);
    expect(await driver.wait(handle)).toMatchObject({ code: 0, oomKilled: false });
  });

  test('a data directory with a path longer than a socket address works', async () => {
    const base = mkdtempSync(join(tmpdir(), 'rookery-long-'));
    const own = new ProcessFixture({ dataDir: join(base, 'x'.repeat(120)) });
    const next = own.driver();
    const { channel, handle } = await startWith('echo', {}, next);
    expect(await call(channel, 'far')).toBe('far');
    await next.remove(handle);
    await own.dispose();
    await next.close();
    rmSync(base, { recursive: true });
  });

  test('a start whose server died before the answer is listed and can be removed', async () => {
    const { handle, spec } = await startWith('echo');
    // The server died before it stored the handle, so only the list finds the sandbox.
    const second = fixture.driver();
    const [listed] = await second.list();
    expect(listed).toEqual({ instanceId: spec.instanceId, handle, running: true });
    await second.remove(listed?.handle as SandboxHandle);
    expect(await second.list()).toEqual([]);
    await second.close();
  });

  test('isolation that is required and switched off refuses the start with the names of the layers', async () => {
    const own = new ProcessFixture({ disable: ['pid', 'seccomp'] });
    const next = own.driver();
    await expect(next.start(own.spec({ requireIsolation: true }), AbortSignal.timeout(WAIT_MS))).rejects.toSatisfy(
      isError('failed_precondition', /^isolation is required, and this machine does not allow: pid, seccomp/),
    );
    const probe = await available(next);
    expect(probe.degraded.join('\n')).toMatch(/pid is not available here \(switched off by a setting\)/);
    const { facts } = await startWith('echo', {}, next);
    expect(facts.isolation).not.toContain('pid');
    expect(facts.warnings.join('\n')).toMatch(/seccomp is not available here/);
    await own.dispose();
  });

  test('a sandbox on the network of the host reports its reach, and one without a network does not', async () => {
    const says = /as process.network: shared says: .* this service’s own API included/;
    const shared = await startWith('echo');
    expect(shared.facts.warnings.join('\n')).toMatch(says);
    const alone = await startWith('echo', { network: 'none' });
    expect(alone.facts.warnings.join('\n')).not.toMatch(says);
    const served = fixture.spec({ requireIsolation: true });
    await driver.start(served, AbortSignal.timeout(WAIT_MS)).catch(error => expect(error.message).not.toMatch(says));
  });

  test('a warning names both uids when the owner of a workspace differs from the user in the sandbox', async context => {
    if (process.getuid?.() !== 0) return context.skip();
    const source = mkdtempSync(join(tmpdir(), 'rookery-owner-'));
    const mounts = [...fixture.spec().mounts, { source, target: '/data', readonly: false }];
    const { facts } = await startWith('echo', { mounts, rootfs: { type: 'host', imageUrl: 'test', user: 'daemon' } });
    expect(facts.warnings.join('\n')).toContain('belongs to uid 0 and daemon has uid 1');
    rmSync(source, { recursive: true });
  });

  test(`${MANY} creates and removes leave no residue`, async () => {
    // Compares the residue of many starts with that of one.
    await startWith('echo').then(({ handle, channel }) => {
      channel.close();
      return driver.remove(handle);
    });
    const settle = async () => {
      let before = '';
      await expect
        .poll(
          () => {
            const now = JSON.stringify(footprint(fixture.dataDir));
            const isSettled = now === before;
            before = now;
            return isSettled;
          },
          { timeout: WAIT_MS, interval: 200 },
        )
        .toBe(true);
      return footprint(fixture.dataDir);
    };
    const before = await settle();
    const one = async () => {
      const { handle, channel } = await startWith('echo');
      await call(channel, 1);
      channel.close();
      await driver.remove(handle);
    };
    for (let turn = 0; turn < MANY / 4; turn++) await Promise.all([one(), one(), one(), one()]);
    expect(await settle()).toEqual(before);
  });
});

/** Returns true if a control group belongs to a worker of this zygote. */
function isOf(group: string, zygote: string, pid: number): boolean {
  return group.startsWith(`${zygote}-`) && new RegExp(`-${pid}-\\d+$`).test(group);
}

const TRUE = { argv: ['true'], workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 100_000 };

async function logText(driver: ProcessDriver, handle: SandboxHandle): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of driver.logs(
    handle,
    { tail: null, sinceMs: null, follow: false },
    AbortSignal.timeout(WAIT_MS),
  )) {
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

/** Returns the processes in the control groups of a sandbox; none without control groups. */
function processesIn({ data }: SandboxHandle): readonly string[] {
  const [path] = Object.values(data.groups as Record<string, string>);
  if (path === undefined) return [];
  return readFileSync(join(path, 'cgroup.procs'), 'utf8')
    .split('\n')
    .filter(line => line !== '');
}

/** Returns the resources of the machine that a fixture's driver uses. */
function footprint(dataDir: string): object {
  const run = join(dataDir, 'run');
  const lock = readdirSync(run).find(name => name.endsWith('.lock')) ?? '';
  const zygote = lock.slice(0, -'.lock'.length);
  const count = (path: string) => (existsSync(path) ? readdirSync(path).length : 0);
  return {
    processes: pids().filter(pid => commandLine(pid).includes(zygote)).length,
    descriptors: count('/proc/self/fd'),
    instances: count(join(run, 'instances')),
    spares: count(join(run, 'spares')),
    mounts: readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .filter(line => line.includes(dataDir)).length,
    groups: groupParents().map(parent => readdirSync(parent).filter(name => name.startsWith(`${zygote}-`)).length),
  };
}

/** Returns our directories in the hierarchies where groups can be made. */
function groupParents(): readonly string[] {
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const points = mounts.filter(line => / - cgroup2? /.test(line)).map(line => line.split(' ')[4] ?? '');
  const own = readFileSync('/proc/self/cgroup', 'utf8')
    .split('\n')
    .map(line => line.split(':')[2] ?? '/');
  const parents = new Set(points.flatMap(point => own.map(group => join(point, group, 'rookery'))));
  return [...parents].filter(isWritable);
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { ProcessStream, SandboxAccess, StartProcess } from '../../src/sandbox/access.ts';
import type { SandboxDriver, SandboxHandle } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { type DriverUnderTest, isError } from './sandbox-driver.ts';

const TEST_TIMEOUT_MS = 60_000;
const WAIT_MS = 30_000;
const POLL = { timeout: WAIT_MS };
const TERMINAL = { columns: 80, rows: 24 };
const MIB = 1024 * 1024;
const ALL_BYTES = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

interface Heard {
  stdout: string;
  stderr: string;
  terminal: string;
  over: Promise<void>;
}

/**
 * Tests the contract of `SandboxProcesses` in `src/sandbox/access.ts`. The sandbox contains a shell, the
 * usual small programs and `python3`.
 */
export function describeProcesses(name: string, create: () => Promise<DriverUnderTest>, isIsolated: boolean): void {
  describe(name, { timeout: TEST_TIMEOUT_MS }, () => {
    let under: DriverUnderTest;
    let driver: SandboxDriver;
    let standing: SandboxHandle;
    let access: SandboxAccess;
    const streams: ProcessStream[] = [];

    beforeAll(async () => {
      under = await create();
      driver = under.driver;
      await available(driver);
      standing = (await driver.start({ ...under.spec(), maxProcesses: 512 }, signal())).handle;
      access = accessOf(standing);
    });

    afterEach(async () => {
      for (const stream of streams.splice(0)) stream.close();
      for (const { pid } of await access.listProcesses(signal())) await kill(pid);
    });

    afterAll(async () => {
      await driver.remove(standing);
      await under.dispose();
    });

    const signal = () => AbortSignal.timeout(WAIT_MS);

    const accessOf = (handle: SandboxHandle): SandboxAccess => {
      const found = driver.access?.(handle);
      if (found === undefined) throw new Error('the driver gives no access');
      return found;
    };

    const kill = (pid: number) => access.signalProcess(pid, 'SIGKILL', signal()).catch(() => undefined);

    const requestOf = (argv: readonly string[], changes: Partial<StartProcess> = {}): StartProcess => ({
      argv,
      workingDir: '',
      env: {},
      user: '',
      terminal: null,
      stdin: false,
      timeLimitMs: 0,
      ...changes,
    });

    const start = async (argv: readonly string[], changes: Partial<StartProcess> = {}) => {
      const stream = await access.startProcess(requestOf(argv, changes), signal());
      streams.push(stream);
      return stream;
    };

    const attach = async (process: number | { tag: string }) => {
      const stream = await access.attachProcess(process, signal());
      streams.push(stream);
      return stream;
    };

    const shell = (script: string, changes: Partial<StartProcess> = {}) => start(['sh', '-c', script], changes);

    /** Collects output in the background, so that a test can wait for a part of it. `over`: for all of it. */
    const hear = (stream: ProcessStream): Heard => {
      const heard = { stdout: '', stderr: '', terminal: '', over: Promise.resolve() };
      const read = async () => {
        for await (const { kind, data } of stream.output) heard[kind] += data.toString('latin1');
      };
      heard.over = read().catch(() => undefined);
      return heard;
    };

    const finish = async (stream: ProcessStream) => {
      const heard = hear(stream);
      await heard.over;
      const { stdout, stderr, terminal } = heard;
      return { stdout, stderr, terminal, ...(await stream.ended) };
    };

    const run = async (script: string, changes: Partial<StartProcess> = {}) =>
      await finish(await shell(script, changes));

    const says = (heard: () => string, part: string) => expect.poll(heard, POLL).toContain(part);

    const alive = async (pid: number) => (await run(`kill -0 ${pid} && echo alive`)).stdout === 'alive\n';

    describe('a process', () => {
      test('reports its output, its error output and its exit code', async () => {
        const { stdout, stderr, code, signal: by, timedOut } = await run('echo one; echo two >&2; exit 3');
        expect({ stdout, stderr, code, by, timedOut }).toEqual({
          stdout: 'one\n',
          stderr: 'two\n',
          code: 3,
          by: null,
          timedOut: false,
        });
      });

      test('has the pid that the sandbox sees', async () => {
        const stream = await shell('echo $$');
        expect((await finish(stream)).stdout).toBe(`${stream.pid}\n`);
      });

      test('reports the signal that ended it', async () => {
        expect(await run('kill -9 $$')).toMatchObject({ code: null, signal: 'SIGKILL', timedOut: false });
        expect(await run('kill -15 $$')).toMatchObject({ code: null, signal: 'SIGTERM' });
      });

      test('gets its arguments, variables and directory', async () => {
        const { stdout } = await finish(
          await start(['sh', '-c', 'echo "$1|$A|$(pwd)"', 'sh', 'a b'], { env: { A: 'x=y' }, workingDir: '/tmp' }),
        );
        expect(stdout).toBe('a b|x=y|/tmp\n');
      });

      test('shows its variables in /proc', async () => {
        const { stdout } = await run('tr "\\0" "\\n" < /proc/self/environ', { env: { MARK: 'here' } });
        const names = stdout.split('\n').map(line => line.split('=')[0]);
        expect(names).toEqual(expect.arrayContaining(['HOME', 'USER', 'LOGNAME', 'PATH', 'MARK']));
      });

      test('has an empty standard input unless one is requested', async () => {
        expect(await run('cat; echo end')).toMatchObject({ stdout: 'end\n', code: 0 });
      });

      test('passes bytes that are no UTF-8', async () => {
        const script = 'import sys; sys.stdout.buffer.write(bytes(range(256)))';
        const { stdout } = await finish(await start(['python3', '-c', script]));
        expect(Buffer.from(stdout, 'latin1')).toEqual(ALL_BYTES);
      });

      test('passes a long command line', async () => {
        const long = 'x'.repeat(100_000);
        expect((await finish(await start(['sh', '-c', `printf %s ${long} | wc -c`]))).stdout.trim()).toBe('100000');
      });

      test('loses no output', async () => {
        const script = `import sys; sys.stdout.write('a' * ${5 * MIB}); sys.stderr.write('b' * ${MIB})`;
        const { stdout, stderr, code } = await finish(await start(['python3', '-c', script]));
        expect([stdout.length, stderr.length, code]).toEqual([5 * MIB, MIB, 0]);
      });

      test('reports lines in order', async () => {
        const { stdout } = await run('seq 1 100000');
        expect(stdout).toBe(Array.from({ length: 100_000 }, (_, line) => `${line + 1}\n`).join(''));
      });

      test('ends when its descendants keep its outputs open', async () => {
        const stream = await shell('sleep 60 & echo $!');
        const { stdout, code } = await finish(stream);
        expect(code).toBe(0);
        await run(`kill -9 ${stdout}`);
      });

      test('leaves its descendants a working output after its end', async () => {
        const mark = `/tmp/late-${randomUUID()}`;
        await run(`(sleep 0.3; echo late && touch ${mark}) &`);
        await expect
          .poll(async () => (await run(`test -e ${mark} && rm ${mark} && echo written`)).stdout, POLL)
          .toBe('written\n');
      });

      test('is killed when its time is over', async () => {
        expect(await run('exec sleep 60', { timeLimitMs: 300 })).toMatchObject({
          code: null,
          signal: 'SIGKILL',
          timedOut: true,
        });
      });

      test('is not started without its directory', async () => {
        await expect(shell('true', { workingDir: '/no/such' })).rejects.toSatisfy(isError('invalid_request'));
        await expect(shell('true', { workingDir: '/no/such' })).rejects.toThrow("cwd '/no/such' does not exist");
      });

      test('is not started without its program', async () => {
        await expect(start(['/no/such/program'])).rejects.toSatisfy(isError('invalid_request'));
        await expect(start(['/no/such/program'])).rejects.toThrow(/cannot run \/no\/such\/program: No such file/);
        await expect(start([])).rejects.toSatisfy(isError('invalid_request'));
      });

      test('is not started for an unknown user', async () => {
        await expect(shell('true', { user: 'stranger' })).rejects.toSatisfy(isError('unauthenticated'));
      });
    });

    describe('a process without listeners', () => {
      test('continues, and is found by its pid and tag', async () => {
        const first = await shell('trap "echo told" USR1; while :; do sleep 0.1; done', { tag: 'worker' });
        first.close();
        await expect(first.ended).rejects.toSatisfy(isError('failed_precondition'));
        const listed = await access.listProcesses(signal());
        expect(listed).toMatchObject([{ pid: first.pid, tag: 'worker', terminal: false, workingDir: '', env: {} }]);
        const heard = [hear(await attach(first.pid)), hear(await attach({ tag: 'worker' }))];
        await access.signalProcess(first.pid, 'SIGUSR1', signal());
        for (const each of heard) await says(() => each.stdout, 'told');
      });

      test('drops its output', async () => {
        const first = await shell(`head -c ${MIB} /dev/zero; echo done > /dev/stderr; exec sleep 60`);
        first.close();
        const second = await attach(first.pid);
        const heard = hear(second);
        await access.signalProcess(first.pid, 'SIGTERM', signal());
        expect(await second.ended).toMatchObject({ signal: 'SIGTERM' });
        expect(heard.stdout.length).toBeLessThanOrEqual(MIB);
      });

      test('reports its end to a later listener', async () => {
        const first = await shell('exit 7', { tag: 'short' });
        await finish(first);
        expect(await finish(await attach(first.pid))).toMatchObject({ code: 7, stdout: '' });
        expect(await finish(await attach({ tag: 'short' }))).toMatchObject({ code: 7 });
        expect(await access.listProcesses(signal())).toEqual([]);
      });

      test('lists what was requested', async () => {
        const changes = { env: { A: 'ü "q"' }, workingDir: '/tmp', tag: 'täg', stdin: true };
        const { pid } = await start(['sleep', '60'], changes);
        const [info] = await access.listProcesses(signal());
        expect(info).toMatchObject({
          pid,
          argv: ['sleep', '60'],
          env: changes.env,
          workingDir: '/tmp',
          tag: 'täg',
          user: '',
        });
        expect(Math.abs((info?.startedAtMs ?? 0) - Date.now())).toBeLessThan(WAIT_MS);
      });
    });

    describe('several listeners', () => {
      test('each get all output and the end', async () => {
        const first = await start(['cat'], { stdin: true });
        const others = await Promise.all([attach(first.pid), attach(first.pid), attach(first.pid)]);
        const heard = [first, ...others].map(hear);
        await access.writeInput(first.pid, Buffer.from('to all'), false, signal());
        for (const each of heard) await says(() => each.stdout, 'to all');
        await access.closeInput(first.pid, signal());
        for (const stream of [first, ...others]) expect(await stream.ended).toMatchObject({ code: 0 });
      });

      test('pause the process until the slowest has read', async () => {
        const first = await shell(`head -c ${8 * MIB} /dev/zero; echo end >&2`);
        const slow = await attach(first.pid);
        const heard = hear(first);
        let bytes = 0;
        for await (const { data } of slow.output) bytes += data.length;
        expect(bytes).toBeGreaterThan(0);
        expect(await first.ended).toMatchObject({ code: 0 });
        await heard.over;
        expect(heard.stdout.length).toBe(8 * MIB);
      });
    });

    describe('the input', () => {
      test('arrives whole and in order', async () => {
        const stream = await start(['cat'], { stdin: true });
        const heard = hear(stream);
        const parts = Array.from({ length: 20 }, (_, part) => `${part}`.repeat(10_000));
        for (const part of parts) await access.writeInput(stream.pid, Buffer.from(part), false, signal());
        await access.closeInput(stream.pid, signal());
        expect(await stream.ended).toMatchObject({ code: 0 });
        await heard.over;
        expect(heard.stdout).toBe(parts.join(''));
      });

      test('waits until the process reads it', async () => {
        const stream = await shell('read line; echo "$line"; cat | wc -c', { stdin: true });
        const heard = hear(stream);
        const written = access.writeInput(stream.pid, Buffer.from(`go\n${'x'.repeat(MIB)}`), false, signal());
        await says(() => heard.stdout, 'go');
        await written;
        await access.closeInput(stream.pid, signal());
        await heard.over;
        expect(heard.stdout.trim().split(/\s+/)[1]).toBe(`${MIB}`);
      });

      test('may be closed twice, and accepts nothing afterwards', async () => {
        const stream = await shell('cat; exec sleep 60', { stdin: true });
        await access.closeInput(stream.pid, signal());
        await access.closeInput(stream.pid, signal());
        const late = access.writeInput(stream.pid, Buffer.from('x'), false, signal());
        await expect(late).rejects.toSatisfy(isError('failed_precondition'));
      });

      test('is refused by a process without one, and in the wrong kind', async () => {
        const { pid } = await start(['sleep', '60']);
        const piped = access.writeInput(pid, Buffer.from('x'), false, signal());
        await expect(piped).rejects.toSatisfy(isError('failed_precondition'));
        const typed = access.writeInput(pid, Buffer.from('x'), true, signal());
        await expect(typed).rejects.toSatisfy(isError('failed_precondition'));
        const terminal = await start(['sleep', '60'], { terminal: TERMINAL });
        const wrong = access.writeInput(terminal.pid, Buffer.from('x'), false, signal());
        await expect(wrong).rejects.toSatisfy(isError('failed_precondition'));
        await expect(access.closeInput(terminal.pid, signal())).rejects.toSatisfy(isError('failed_precondition'));
      });

      test('fails when the process ends before it reads', async () => {
        const stream = await start(['sleep', '60'], { stdin: true });
        const written = access.writeInput(stream.pid, Buffer.alloc(MIB), false, signal());
        written.catch(() => undefined);
        await kill(stream.pid);
        // An ending process closes its input a moment before it has ended.
        await expect(written).rejects.toSatisfy(
          error => isError('not_found')(error) || isError('failed_precondition')(error),
        );
      });
    });

    describe('a signal', () => {
      test('reaches the process and not its children', async () => {
        const stream = await shell('sleep 60 & echo $!; wait');
        const heard = hear(stream);
        await says(() => heard.stdout, '\n');
        const child = Number(heard.stdout);
        await access.signalProcess(stream.pid, 'SIGKILL', signal());
        expect(await stream.ended).toMatchObject({ signal: 'SIGKILL' });
        expect(await alive(child)).toBe(true);
        await run(`kill -9 ${child}`);
      });

      test('is refused after the end', async () => {
        const stream = await start(['sleep', '60']);
        await access.signalProcess(stream.pid, 'SIGTERM', signal());
        await stream.ended;
        await expect(access.signalProcess(stream.pid, 'SIGTERM', signal())).rejects.toSatisfy(isError('not_found'));
      });

      test('is refused for processes that do not exist', async () => {
        for (const process of [999_999, { tag: 'none' }]) {
          await expect(access.signalProcess(process, 'SIGTERM', signal())).rejects.toSatisfy(isError('not_found'));
          await expect(access.attachProcess(process, signal())).rejects.toSatisfy(isError('not_found'));
        }
      });
    });

    describe('a terminal', () => {
      test('has its size, accepts input and reports its output', async () => {
        const stream = await shell('stty size; tty; echo "$TERM"; read line; echo "got $line"', { terminal: TERMINAL });
        const heard = hear(stream);
        await says(() => heard.terminal, 'xterm-256color');
        expect(heard.terminal).toMatch(/^24 80\r\n\/dev\/pts\/\d+\r\n/);
        await access.writeInput(stream.pid, Buffer.from('hello\n'), true, signal());
        expect(await stream.ended).toMatchObject({ code: 0 });
        await heard.over;
        expect(heard.terminal).toContain('got hello\r\n');
      });

      test('is resized', async () => {
        const stream = await shell('trap "stty size; exit" WINCH; echo ready; while :; do sleep 0.05; done', {
          terminal: TERMINAL,
        });
        const heard = hear(stream);
        await says(() => heard.terminal, 'ready');
        await access.resizeProcess(stream.pid, { columns: 100, rows: 30 }, signal());
        await heard.over;
        expect(heard.terminal).toContain('30 100');
      });

      test('passes Ctrl-C to its foreground process', async () => {
        const stream = await shell('echo ready; exec sleep 60', { terminal: TERMINAL });
        const heard = hear(stream);
        await says(() => heard.terminal, 'ready');
        await access.writeInput(stream.pid, Buffer.from('\x03'), true, signal());
        expect(await stream.ended).toMatchObject({ signal: 'SIGINT' });
      });

      test('belongs to the user of the process', async () => {
        const { terminal } = await run('test -O "$(tty)" && echo own', { terminal: TERMINAL });
        expect(terminal).toBe('own\r\n');
      });

      test('is needed for a new size', async () => {
        const { pid } = await start(['sleep', '60']);
        await expect(access.resizeProcess(pid, TERMINAL, signal())).rejects.toSatisfy(isError('failed_precondition'));
      });
    });

    describe('the table', () => {
      test('runs 60 processes at once', async () => {
        const all = await Promise.all(
          Array.from({ length: 60 }, (_, index) => shell(`read line; echo ${index}`, { stdin: true })),
        );
        const ended = all.map(stream => finish(stream));
        for (const { pid } of all) await access.writeInput(pid, Buffer.from('\n'), false, signal());
        const results = await Promise.all(ended);
        expect(results.map(({ stdout }) => stdout)).toEqual(all.map((_, index) => `${index}\n`));
      });

      test('does not list or limit hidden processes', async () => {
        const { pid } = await start(['sleep', '60'], { hidden: true });
        expect(await access.listProcesses(signal())).toEqual([]);
        await kill(pid);
      });

      test.runIf(isIsolated)('cannot be read or traced by its processes', async () => {
        const script = [
          'readlink /proc/$PPID/fd/0 || readlink /proc/$PPID/root || head -c1 /proc/$PPID/mem || head -c1 /proc/$PPID/environ',
          'python3 -c "import ctypes, os; print(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))"',
        ];
        expect((await finish(await start(['sh', '-c', `${script[0]}; exec ${script[1]}`]))).stdout).toBe('-1\n');
      });

      test.runIf(isIsolated)('gives its processes no capability and no descriptor of its own', async () => {
        const script = [
          'import os',
          'lines = open("/proc/self/status").read().splitlines()',
          'print(sorted(line for line in lines if line[:4] == "Cap" and int(line.split()[1], 16) > 0 and line[:6] != "CapBnd"))',
          'print([n for n in range(3, 256) if os.path.exists("/proc/self/fd/%d" % n)])',
        ];
        expect((await finish(await start(['python3', '-c', script.join('\n')]))).stdout).toBe('[]\n[]\n');
      });

      test('starts again when a process inside has ended it', async () => {
        const stream = await start(['sleep', '60']);
        hear(stream);
        const { stdout } = await run('cat /proc/$PPID/comm; kill -9 $PPID 2>/dev/null && echo killed').catch(() => ({
          stdout: 'killed',
        }));
        if (stdout.includes('killed')) await expect(stream.ended).rejects.toSatisfy(isError('unavailable'));
        await vi.waitFor(async () => expect((await run('echo again')).stdout).toBe('again\n'), POLL);
      });

      test('refuses every operation when the sandbox has ended', async () => {
        const { handle } = await driver.start(under.spec(), signal());
        const other = accessOf(handle);
        const stream = await other.startProcess(requestOf(['sleep', '60']), signal());
        stream.output[Symbol.asyncIterator]()
          .next()
          .catch(() => undefined);
        await driver.stop(handle, 0);
        await expect(stream.ended).rejects.toSatisfy(isError('unavailable'));
        await expect(other.listProcesses(signal())).rejects.toSatisfy(isError('failed_precondition'));
        await driver.remove(handle);
      });
    });
  });
}

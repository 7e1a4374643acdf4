import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { PassThrough, Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { finished } from 'node:stream/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { OpenExec, OpenExecRequest, SandboxAccess } from '../../src/sandbox/access.ts';
import type { SandboxDriver, SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { type DriverUnderTest, isError } from './sandbox-driver.ts';

const TEST_TIMEOUT_MS = 60_000;
const WAIT_MS = 30_000;
const MOST_EXECS = 32;
const TERMINAL = { columns: 80, rows: 24 };
/**
 * Script of a server that answers each connection with its reversed input at the end of input. Its first line
 * of output is the port.
 */
const REVERSER = `
import socket, sys, threading
family = socket.AF_INET6 if sys.argv[1] == '::1' else socket.AF_INET
server = socket.socket(family)
server.bind((sys.argv[1], 0))
server.listen(64)
print(server.getsockname()[1], flush=True)
def answer(connection):
    with connection:
        data = b''
        while True:
            part = connection.recv(65536)
            if not part:
                break
            data += part
        connection.sendall(data[::-1])
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
`;

/**
 * Tests the contract of `src/sandbox/access.ts`. The sandbox contains a shell, the usual small programs and
 * `python3`. `closedFile` is a file that the driver's other user may not open.
 */
export function describeAccess(
  name: string,
  create: () => Promise<DriverUnderTest>,
  closedFile = '/proc/1/environ',
  makeMs?: number,
): void {
  describe(name, { timeout: TEST_TIMEOUT_MS }, () => {
    let under: DriverUnderTest;
    let driver: SandboxDriver;
    const directories: string[] = [];
    const execs: OpenExec[] = [];
    /**
     * Sandbox for all tests that change only their own directory. A start takes a second on some drivers, and
     * the suite is long.
     */
    let standing: SandboxHandle | null = null;

    beforeAll(async () => {
      under = await create();
      driver = under.driver;
      await available(driver);
    }, makeMs);

    afterEach(async () => {
      for (const exec of execs.splice(0)) exec.kill();
      for (const { instanceId, handle } of await driver.list()) {
        if (instanceId !== standing?.instanceId) await driver.remove(handle);
      }
      // Some sandboxes use files of the host, so the directories exist on the host too.
      for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true });
    });

    afterAll(async () => {
      if (standing !== null) await driver.remove(standing);
      await under.dispose();
    });

    const signal = () => AbortSignal.timeout(WAIT_MS);

    const accessOf = (handle: SandboxHandle): SandboxAccess => {
      const access = driver.access?.(handle);
      if (access === undefined) throw new Error('the driver gives no access');
      return access;
    };

    /** Starts a sandbox for one test, with an empty directory in it. */
    const startOwn = async (changes: Partial<SandboxSpec> = {}) => {
      const { handle } = await driver.start({ ...under.spec(), ...changes }, signal());
      return { handle, ...(await enter(handle)) };
    };

    /**
     * Makes an empty directory in the shared sandbox. Starts another one if a test has ended it, so that only
     * that test fails.
     */
    const start = async () => {
      if (standing === null || (await driver.inspect(standing)).state !== 'running')
        standing = (await driver.start(under.spec(), signal())).handle;
      return await enter(standing);
    };

    const enter = async (handle: SandboxHandle) => {
      const access = accessOf(handle);
      const directory = `/tmp/rookery-access-${randomUUID()}`;
      directories.push(directory);
      await access.makeDirectory(directory, { mode: null, recursive: false }, signal());
      return { access, directory };
    };

    const run = async (access: SandboxAccess, argv: readonly string[], changes: Partial<OpenExecRequest> = {}) => {
      const exec = await access.openExec({ argv, workingDir: '', env: {}, terminal: null, ...changes }, signal());
      exec.ended.catch(() => undefined);
      execs.push(exec);
      return exec;
    };

    const shell = (access: SandboxAccess, script: string, changes: Partial<OpenExecRequest> = {}) =>
      run(access, ['sh', '-c', script], changes);

    const output = async (access: SandboxAccess, script: string) => {
      const exec = await shell(access, script);
      const [stdout] = await Promise.all([text(exec.stdout), text(exec.stderr), exec.ended]);
      return stdout;
    };

    const put = (access: SandboxAccess, path: string, content: string | Buffer, mode: number | null = null) =>
      access.writeFile(path, { mode }, Readable.from([Buffer.from(content)]), signal());

    const get = async (access: SandboxAccess, path: string) => {
      const file = await access.openFile(path, signal());
      return await text(file.read(0, file.sizeBytes));
    };

    const isReal = () => under.entries.real !== undefined;

    describe('all operations of the access', () => {
      const ways: [string, (access: SandboxAccess, by: AbortSignal) => Promise<unknown>][] = [
        ['openExec', (access, by) => access.openExec({ argv: ['true'], workingDir: '', env: {}, terminal: null }, by)],
        ['dial', (access, by) => access.dial(80, by)],
        ['openFile', (access, by) => access.openFile('/etc/hosts', by)],
        ['writeFile', (access, by) => access.writeFile('/tmp/x', { mode: null }, Readable.from(['x']), by)],
        ['listFiles', (access, by) => access.listFiles('/etc', { maxDepth: 1, maxEntries: 10 }, by)],
        ['makeDirectory', (access, by) => access.makeDirectory('/tmp/x/y', { mode: null, recursive: false }, by)],
      ];

      test.each(ways)(
        'the operation %s fails with failed_precondition in a sandbox that has ended',
        async (_name, use) => {
          const { handle } = await startOwn();
          await driver.stop(handle, 0);
          await expect(use(accessOf(handle), signal())).rejects.toSatisfy(isError('failed_precondition'));
          await driver.remove(handle);
          await expect(use(accessOf(handle), signal())).rejects.toSatisfy(isError('failed_precondition'));
        },
      );

      test.each(ways)(
        'the operation %s fails with deadline_exceeded when its signal has aborted',
        async (_name, use) => {
          const { access } = await start();
          await expect(use(access, AbortSignal.abort())).rejects.toSatisfy(isError('deadline_exceeded'));
        },
      );

      test('an open access ends with the sandbox, and its streams are destroyed', async () => {
        const { handle, access, directory } = await startOwn();
        const exec = await shell(access, 'echo up; exec sleep 600');
        await firstOf(exec.stdout);
        const { port } = await serve(access);
        const connection = await access.dial(port, signal());
        await put(access, `${directory}/file`, Buffer.alloc(40_000_000));
        const file = await access.openFile(`${directory}/file`, signal());
        const read = file.read(0, file.sizeBytes);
        const content = new PassThrough();
        const writing = access.writeFile(`${directory}/new`, { mode: null }, content, signal());
        writing.catch(() => undefined);
        content.write('half');
        // The driver opens the file when it first reads from `content`.
        await vi.waitFor(() => expect(content.readableLength).toBe(0), { timeout: WAIT_MS, interval: 5 });
        const ends = [exec.stdout, exec.stderr, exec.stdin, connection].map(stream =>
          finished(stream).catch(() => undefined),
        );
        await driver.stop(handle, 0);
        await expect(exec.ended).rejects.toSatisfy(isError('unavailable'));
        await expect(buffer(read)).rejects.toSatisfy(isError('unavailable'));
        await expect(writing).rejects.toSatisfy(isError('unavailable'));
        connection.resume().on('error', () => undefined);
        connection.end();
        await Promise.all(ends);
        for (const stream of [exec.stdout, exec.stderr, exec.stdin]) expect(stream.destroyed).toBe(true);
      });
    });

    /** Starts the reversing server inside. */
    const serve = async (access: SandboxAccess, host = '127.0.0.1') => {
      const exec = await run(access, ['python3', '-c', REVERSER, host]);
      return { exec, port: Number(String(await firstOf(exec.stdout))) };
    };

    describe('openExec', () => {
      test('openExec passes standard input and returns both outputs separately and the return code', async () => {
        const { access } = await start();
        const exec = await shell(access, 'cat; echo err >&2; exit 5');
        exec.stdin.end('typed');
        expect(await Promise.all([text(exec.stdout), text(exec.stderr), exec.ended])).toEqual(['typed', 'err\n', 5]);
      });

      test('openExec returns output of the command before the input ends', async () => {
        const { access } = await start();
        const exec = await run(access, ['cat']);
        for (const word of ['one', 'two']) {
          exec.stdin.write(word);
          expect(String(await firstOf(exec.stdout))).toBe(word);
        }
        exec.stdin.end();
        expect(await exec.ended).toBe(0);
      });

      test('openExec adds variables to those of the sandbox, and runs in the given directory or in that of the sandbox', async () => {
        const env = { ...under.spec().env, FROM_SPEC: 'spec' };
        const { access } = await startOwn({ env, workingDir: '/usr' });
        const script = 'echo "$FROM_SPEC $ADDED"; pwd';
        const exec = await shell(access, script, { env: { ADDED: 'added' }, workingDir: '/tmp' });
        expect(await text(exec.stdout)).toBe('spec added\n/tmp\n');
        if (isReal()) expect(await output(access, 'pwd')).toBe('/usr\n');
      });

      test('openExec resolves a relative directory from that of the sandbox', async context => {
        if (!isReal()) return context.skip();
        const { access } = await startOwn({ workingDir: '/usr' });
        expect(await text((await shell(access, 'pwd', { workingDir: 'share' })).stdout)).toBe('/usr/share\n');
        const exec = await shell(access, 'echo ran', { workingDir: 'no-such-directory' });
        expect(await text(exec.stderr)).toMatch(/^cannot run sh in (\/usr\/)?no-such-directory: no such file/i);
        expect(await exec.ended).toBe(127);
      });

      test('openExec does not run a command when its directory is missing', async context => {
        // A fake sandbox runs programs of this machine and has no init to report this.
        if (!isReal()) return context.skip();
        const { access } = await start();
        const exec = await shell(access, 'echo ran', { workingDir: '/no-such-directory' });
        expect(await text(exec.stdout)).toBe('');
        expect(await text(exec.stderr)).toMatch(/^cannot run sh in \/no-such-directory: no such file/i);
        expect(await exec.ended).toBe(127);
      });

      test('openExec returns 128 plus the number of the signal that ended the command', async () => {
        const { access } = await start();
        expect(await (await shell(access, 'kill -TERM $$')).ended).toBe(143);
      });

      test('openExec returns 127 and a line of error output for a missing program', async () => {
        const { access } = await start();
        const exec = await run(access, ['no-such-program']);
        expect(await text(exec.stderr)).toContain('no-such-program');
        expect(await exec.ended).toBe(127);
      });

      test('openExec passes large amounts of data completely in both directions', async () => {
        const { access } = await start();
        const exec = await run(access, ['cat']);
        const sent = Buffer.alloc(10_000_000);
        for (let at = 0; at < sent.length; at += 4) sent.writeUInt32LE(at, at);
        exec.stdin.end(sent);
        expect((await buffer(exec.stdout)).equals(sent)).toBe(true);
        expect(await exec.ended).toBe(0);
      });

      test('openExec pauses the command when its output is not read', async () => {
        const { access, directory } = await start();
        const exec = await shell(access, `head -c 10000000 /dev/zero; touch ${directory}/done`);
        await expect.poll(() => exec.stdout.readableLength).toBeGreaterThan(0);
        for (let turn = 0; turn < 5; turn++) expect(await output(access, `ls ${directory}`)).toBe('');
        expect((await buffer(exec.stdout)).length).toBe(10_000_000);
        expect(await exec.ended).toBe(0);
        expect(await output(access, `ls ${directory}`)).toBe('done\n');
      });

      test('openExec pauses the writer when the command does not read, and can end the command', async () => {
        const { access } = await start();
        const exec = await run(access, ['sleep', '600']);
        let hasDrained = false;
        exec.stdin.on('drain', () => {
          hasDrained = true;
        });
        exec.stdin.write(Buffer.alloc(10_000_000));
        for (let turn = 0; turn < 5; turn++) await output(access, 'true');
        expect(hasDrained).toBe(false);
        exec.kill();
        expect(await exec.ended).toBe(137);
      });

      test('openExec does not wait for background processes of the command', async context => {
        if (!isReal()) return context.skip();
        const { access } = await start();
        const exec = await shell(access, 'sleep 600 & echo done');
        expect(await text(exec.stdout)).toBe('done\n');
        expect(await exec.ended).toBe(0);
      });

      /** Returns true if a process with this marker in its command line runs inside. */
      const lives = async (access: SandboxAccess, marker: string) =>
        (await output(access, 'cat /proc/[0-9]*/cmdline | tr "\\0" " "')).includes(`sleep ${marker}`);

      const markerOf = () => `600.${process.pid}${Date.now()}`;

      test('kill of openExec ends the whole process group', async () => {
        const { access } = await start();
        const marker = markerOf();
        const exec = await shell(access, `sleep ${marker} & echo up; wait`);
        await firstOf(exec.stdout);
        expect(await lives(access, marker)).toBe(true);
        exec.kill();
        expect(await exec.ended).toBe(137);
        await expect.poll(() => lives(access, marker), { timeout: WAIT_MS }).toBe(false);
        exec.kill();
      });

      test('openExec ends the whole process group when its signal aborts', async () => {
        const { access } = await start();
        const marker = markerOf();
        const controller = new AbortController();
        const request = { argv: ['sh', '-c', `sleep ${marker} & echo up; wait`], workingDir: '', env: {} };
        const exec = await access.openExec({ ...request, terminal: null }, controller.signal);
        await firstOf(exec.stdout);
        controller.abort();
        await expect(exec.ended).rejects.toSatisfy(isError('deadline_exceeded'));
        expect(exec.stdout.destroyed).toBe(true);
        await expect.poll(() => lives(access, marker), { timeout: WAIT_MS }).toBe(false);
      });

      test(`openExec refuses more than ${MOST_EXECS} commands with resource_exhausted, and accepts another when one has ended`, async () => {
        const { handle, access } = await startOwn();
        const open: OpenExec[] = [];
        for (let count = 0; count < MOST_EXECS; count++) open.push(await run(access, ['cat']));
        await expect(run(access, ['cat'])).rejects.toSatisfy(isError('resource_exhausted'));
        const request = { argv: ['true'], workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS };
        expect(await driver.exec(handle, { ...request, maxOutputBytes: 1000 }, signal())).toMatchObject({
          returncode: 0,
        });
        open[0]?.kill();
        await open[0]?.ended;
        const isTaken = () =>
          run(access, ['true']).then(
            exec => exec.ended,
            () => null,
          );
        await expect.poll(isTaken, { timeout: WAIT_MS }).toBe(0);
        await driver.stop(handle, 0);
      });
    });

    describe('openExec with a terminal', () => {
      test('openExec gives the command a terminal of the requested size, which receives both outputs', async context => {
        if (!isReal()) return context.skip();
        const { access } = await start();
        // A daemon may set the size of the terminal after the command has started.
        const sized = 'while [ "$(stty size)" = "0 0" ]; do :; done; stty size';
        const script = `test -t 0 && test -t 1 && test -t 2 && tty >/dev/null && ${sized} && echo err >&2`;
        const exec = await shell(access, script, { terminal: { columns: 91, rows: 17 } });
        expect(await Promise.all([text(exec.stdout), text(exec.stderr), exec.ended])).toEqual([
          '17 91\r\nerr\r\n',
          '',
          0,
        ]);
      });

      test('a command in a terminal gets the signal of a resize, and sees the new size', async context => {
        if (!isReal()) return context.skip();
        const { access } = await start();
        // The first size may arrive after the start, and then counts as a change too.
        const script = `trap 'stty size; [ "$(stty size)" = "43 132" ] && exit 3' WINCH; echo up; while :; do sleep 0.01; done`;
        const exec = await shell(access, script, { terminal: TERMINAL });
        await firstOf(exec.stdout);
        exec.resize({ columns: 132, rows: 43 });
        expect(await text(exec.stdout)).toContain('43 132\r\n');
        expect(await exec.ended).toBe(3);
        exec.resize({ columns: 1, rows: 1 });
      });

      test('a terminal translates the keys for interrupt and end of input', async context => {
        if (!isReal()) return context.skip();
        const { access } = await start();
        const interrupted = await shell(access, 'echo up; exec sleep 600', { terminal: TERMINAL });
        await firstOf(interrupted.stdout);
        interrupted.stdin.write('\x03');
        expect(await interrupted.ended).toBe(130);
        const ended = await run(access, ['cat'], { terminal: TERMINAL });
        ended.stdin.write('\x04');
        expect(await ended.ended).toBe(0);
      });

      test('the end of standard input does not end a command in a terminal', async context => {
        if (!isReal()) return context.skip();
        const { access } = await start();
        const exec = await shell(access, 'read line; echo "got $line"', { terminal: TERMINAL });
        exec.stdin.end('word\n');
        expect(await text(exec.stdout)).toContain('got word\r\n');
        expect(await exec.ended).toBe(0);
      });

      test('large output of a terminal arrives completely, and jobs of a shell end when the shell is killed', async context => {
        if (!isReal()) return context.skip();
        const { access } = await start();
        const exec = await shell(access, 'i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done', {
          terminal: TERMINAL,
        });
        expect((await text(exec.stdout)).split('\r\n').length).toBe(3001);
        const jobs = await shell(access, 'set -m; sleep 600 & echo up; wait', { terminal: TERMINAL });
        await firstOf(jobs.stdout);
        jobs.kill();
        expect(await jobs.ended).toBe(137);
      });
    });

    describe('dial', () => {
      test('dial passes bytes unchanged in both directions, and the end of each side separately', async () => {
        const { access } = await start();
        const { port } = await serve(access);
        const connection = await access.dial(port, signal());
        const sent = Buffer.alloc(3_000_000);
        for (let at = 0; at < sent.length; at += 4) sent.writeUInt32LE(at, at);
        connection.end(sent);
        expect((await buffer(connection)).equals(Buffer.from(sent).reverse())).toBe(true);
      });

      test('dial opens many connections at once', async () => {
        const { access } = await start();
        const { port } = await serve(access);
        const answers = await Promise.all(
          Array.from({ length: 20 }, async (_, index) => {
            const connection = await access.dial(port, signal());
            connection.end(`n${index}`);
            return await text(connection);
          }),
        );
        expect(answers).toEqual(answers.map((_, index) => [...`n${index}`].reverse().join('')));
      });

      test('dial fails with unavailable and the number of a port without a listener', async () => {
        const { access } = await start();
        const { exec, port } = await serve(access);
        exec.kill();
        await exec.ended;
        await expect(access.dial(port, signal())).rejects.toSatisfy(
          isError('unavailable', new RegExp(`^nothing listens on port ${port}$`)),
        );
      });

      test('dial closes its connection when its signal aborts', async () => {
        const { access } = await start();
        const { port } = await serve(access);
        const controller = new AbortController();
        const connection = await access.dial(port, controller.signal);
        const closed = finished(connection).catch(() => undefined);
        connection.on('error', () => undefined);
        controller.abort();
        await closed;
        expect(connection.destroyed).toBe(true);
      });
    });

    describe('openFile', () => {
      test('openFile returns size, mode and time, and any range of the bytes', async () => {
        const { access, directory } = await start();
        const before = Date.now();
        await put(access, `${directory}/file`, '0123456789', 0o640);
        const read = async (from: number, to: number) =>
          await text((await access.openFile(`${directory}/file`, signal())).read(from, to));
        const file = await access.openFile(`${directory}/file`, signal());
        expect(file).toMatchObject({ sizeBytes: 10, mode: 0o640 });
        expect(Math.abs(file.modifiedAtMs - before)).toBeLessThan(WAIT_MS);
        expect(await text(file.read(0, 10))).toBe('0123456789');
        expect(await read(3, 5)).toBe('34');
        expect(await read(9, 10)).toBe('9');
        expect(await read(10, 10)).toBe('');
      });

      test('openFile returns large files completely, at the pace of the reader', async () => {
        const { access, directory } = await start();
        const sent = Buffer.alloc(20_000_000);
        for (let at = 0; at < sent.length; at += 4) sent.writeUInt32LE(at, at);
        await put(access, `${directory}/file`, sent);
        const file = await access.openFile(`${directory}/file`, signal());
        const reading = file.read(0, file.sizeBytes);
        reading.read(0);
        await expect.poll(() => reading.readableLength).toBeGreaterThan(0);
        await output(access, 'true');
        expect(reading.readableLength).toBeLessThan(4_000_000);
        expect((await buffer(reading)).equals(sent)).toBe(true);
      });

      test('openFile returns the opened file when another one replaces it at its path', async () => {
        const { access, directory } = await start();
        await put(access, `${directory}/file`, 'old');
        const file = await access.openFile(`${directory}/file`, signal());
        await put(access, `${directory}/file`, 'new, and longer');
        expect(await text(file.read(0, file.sizeBytes))).toBe('old');
        expect(await get(access, `${directory}/file`)).toBe('new, and longer');
      });

      test('a file that is closed without a read releases its descriptor', async () => {
        const { access, directory } = await start();
        await put(access, `${directory}/file`, 'x');
        for (let count = 0; count < 100; count++) (await access.openFile(`${directory}/file`, signal())).close();
      });

      test('a file that grows is read to its former end, and one that shrinks fails with unavailable', async () => {
        const { access, directory } = await start();
        await put(access, `${directory}/file`, '12345');
        const growing = await access.openFile(`${directory}/file`, signal());
        await output(access, `echo more >> ${directory}/file`);
        expect(await text(growing.read(0, growing.sizeBytes))).toBe('12345');
        const shrinking = await access.openFile(`${directory}/file`, signal());
        await output(access, `printf 12 > ${directory}/file`);
        await expect(text(shrinking.read(0, shrinking.sizeBytes))).rejects.toSatisfy(isError('unavailable'));
      });

      test('openFile resolves a link inside of the sandbox', async () => {
        const { access, directory } = await start();
        await put(access, `${directory}/file`, 'content');
        await output(access, `ln -s file ${directory}/link; ln -s ${directory} ${directory}/loop`);
        expect(await get(access, `${directory}/link`)).toBe('content');
        expect(await get(access, `${directory}/loop/loop/link`)).toBe('content');
      });

      test.each([
        ['a missing file', 'missing', 'not_found'],
        ['a file where a directory should be', 'file/below', 'not_found'],
        ['a directory', 'directory', 'invalid_request'],
        ['a pipe, without waiting', 'pipe', 'invalid_request'],
        ['a link to itself', 'circle', 'invalid_request'],
        ['a name that is too long', 'n'.repeat(300), 'invalid_request'],
        ['a NUL byte', 'fi\0le', 'invalid_request'],
      ] as const)('openFile fails with the path for %s', async (_name, path, code) => {
        const { access, directory } = await start();
        await output(access, `cd ${directory} && touch file && mkdir directory && mkfifo pipe && ln -s circle circle`);
        const named = path.includes('\0') ? /NUL/ : new RegExp(path);
        await expect(access.openFile(`${directory}/${path}`, signal())).rejects.toSatisfy(isError(code, named));
      });

      test('openFile fails with invalid_request for a device and for an empty path', async () => {
        const { access } = await start();
        await expect(access.openFile('/dev/zero', signal())).rejects.toSatisfy(
          isError('invalid_request', /\/dev\/zero/),
        );
        await expect(access.openFile('', signal())).rejects.toSatisfy(isError('invalid_request'));
      });

      test('a relative path is relative to the working directory', async context => {
        if (!isReal()) return context.skip();
        const { access, directory } = await startOwn({ workingDir: '/tmp' });
        const relative = directory.slice('/tmp/'.length);
        await put(access, `${relative}/file`, 'content');
        expect(await get(access, `${directory}/file`)).toBe('content');
        const { entries } = await access.listFiles(relative, { maxDepth: 1, maxEntries: 10 }, signal());
        expect(entries.map(({ path }) => path)).toEqual([`${directory}/file`]);
      });
    });

    describe('writeFile', () => {
      test('writeFile creates a file with the given content and mode, by default 0644, and returns its size', async () => {
        const { access, directory } = await start();
        expect(await put(access, `${directory}/a`, 'content')).toEqual({ sizeBytes: 7 });
        expect(await put(access, `${directory}/b`, 'script', 0o755)).toEqual({ sizeBytes: 6 });
        expect(await access.writeFile(`${directory}/c`, { mode: null }, Readable.from([]), signal())).toEqual({
          sizeBytes: 0,
        });
        expect(await output(access, `cd ${directory}; stat -c '%n %a %s' a b c`)).toBe('a 644 7\nb 755 6\nc 644 0\n');
        expect(await get(access, `${directory}/a`)).toBe('content');
      });

      test('writeFile replaces a file only when all content has arrived', async () => {
        const { access, directory } = await start();
        await put(access, `${directory}/file`, 'old', 0o600);
        const content = new PassThrough();
        const writing = access.writeFile(`${directory}/file`, { mode: null }, content, signal());
        content.write('new');
        expect(await get(access, `${directory}/file`)).toBe('old');
        content.end();
        await writing;
        expect(await get(access, `${directory}/file`)).toBe('new');
        expect(await output(access, `ls -A ${directory}`)).toBe('file\n');
      });

      test('an upload that breaks off or is aborted leaves the former file and nothing else', async () => {
        const { access, directory } = await start();
        await put(access, `${directory}/file`, 'old');
        const breaking = new PassThrough();
        const first = access.writeFile(`${directory}/file`, { mode: null }, breaking, signal());
        breaking.write('new');
        breaking.destroy(new Error('the client left'));
        await expect(first).rejects.toSatisfy(isError('unavailable'));
        const controller = new AbortController();
        const content = new PassThrough();
        const second = access.writeFile(`${directory}/file`, { mode: null }, content, controller.signal);
        content.write('new');
        controller.abort();
        await expect(second).rejects.toSatisfy(isError('deadline_exceeded'));
        expect(content.destroyed).toBe(true);
        await expect.poll(() => output(access, `ls -A ${directory}`), { timeout: WAIT_MS }).toBe('file\n');
        expect(await get(access, `${directory}/file`)).toBe('old');
      });

      test('writeFile fails with the error of its content stream unchanged', async () => {
        const { access, directory } = await start();
        const { invalidRequest } = await import('../../src/core/error.ts');
        const content = new PassThrough();
        const writing = access.writeFile(`${directory}/file`, { mode: null }, content, signal());
        content.destroy(invalidRequest('the file is too large'));
        await expect(writing).rejects.toSatisfy(isError('invalid_request', /too large/));
      });

      test('writeFile replaces the target of a link and not the link', async () => {
        const { access, directory } = await start();
        await output(
          access,
          `cd ${directory}; echo old > target; ln -s target second; ln -s second link; ln -s fresh dangling`,
        );
        for (const name of ['link', 'dangling']) await put(access, `${directory}/${name}`, 'new');
        expect(await output(access, `cd ${directory}; ls; cat target fresh; find . -type l | sort`)).toBe(
          'dangling\nfresh\nlink\nsecond\ntarget\nnewnew./dangling\n./link\n./second\n',
        );
      });

      test('writeFile keeps the mode of the replaced file when no mode is given', async () => {
        const { access, directory } = await start();
        await output(access, `cd ${directory}; echo old > script; chmod 750 script; ln -s script link`);
        await put(access, `${directory}/link`, 'new');
        expect(await output(access, `ls -l ${directory}/script | cut -c1-10`)).toBe('-rwxr-x---\n');
      });

      test('writeFile refuses to replace a pipe or a device', async () => {
        const { access, directory } = await start();
        await output(access, `cd ${directory}; mkfifo pipe; ln -s pipe link`);
        for (const path of [`${directory}/pipe`, `${directory}/link`, '/dev/null']) {
          await expect(put(access, path, 'new')).rejects.toSatisfy(
            isError('invalid_request', /is a (pipe|device), not a file/),
          );
        }
        expect(await output(access, `ls -l ${directory}/pipe | cut -c1`)).toBe('p\n');
      });

      test('writeFile does not change other hard links of the replaced file', async () => {
        const { access, directory } = await start();
        await output(access, `cd ${directory}; printf old > file; ln file other`);
        await put(access, `${directory}/file`, 'new');
        expect(await output(access, `cat ${directory}/other ${directory}/file`)).toBe('oldnew');
      });

      test.each([
        ['a missing directory', 'missing/file', 'not_found'],
        ['a file where a directory should be', 'file/below', 'not_found'],
        ['a directory at the path', 'directory', 'invalid_request'],
        ['a path that ends in a slash', 'new/', 'invalid_request'],
        ['a name that is too long', 'n'.repeat(300), 'invalid_request'],
      ] as const)('writeFile fails with the path for %s', async (_name, path, code) => {
        const { access, directory } = await start();
        await output(access, `cd ${directory} && touch file && mkdir directory`);
        const named = new RegExp(path.split('/')[0] ?? '');
        await expect(put(access, `${directory}/${path}`, 'x')).rejects.toSatisfy(isError(code, named));
        expect(await output(access, `ls -A ${directory}`)).toBe('directory\nfile\n');
      });

      test('writeFile fails with resource_exhausted without residue when the disk is full', async context => {
        const { access } = await startOwn();
        // Only a real sandbox has its own file system that a test can fill safely.
        const size = Number((await output(access, "df -k /tmp | tail -1 | awk '{print $2}'")).trim());
        if (!isReal() || size > 512 * 1024) return context.skip();
        const endless = Readable.from(
          (function* () {
            for (let count = 0; count < 16 * 1024; count++) yield Buffer.alloc(64 * 1024);
          })(),
        );
        await expect(access.writeFile('/tmp/large', { mode: null }, endless, signal())).rejects.toSatisfy(
          isError('resource_exhausted', /\/tmp\/large/),
        );
        expect(await output(access, 'find /tmp -xdev -name large; du -xsk /tmp | cut -f1')).toMatch(/^\d{1,3}\n$/);
      });

      test('exactly one of two concurrent calls of writeFile wins completely', async () => {
        const { access, directory } = await start();
        const contents = ['a', 'b'].map(letter => letter.repeat(1_000_000));
        await Promise.all(contents.map(content => put(access, `${directory}/file`, content)));
        expect(contents).toContain(await get(access, `${directory}/file`));
      });
    });

    describe('access as the user of the sandbox', () => {
      const startAs = (name: string) => startOwn({ rootfs: { ...under.spec().rootfs, user: name } });

      test('files, directories and commands belong to the user of the sandbox', async context => {
        if (!isReal() || under.user === null) return context.skip();
        const { access, directory } = await startAs(under.user.name);
        await put(access, `${directory}/file`, 'x');
        expect(await output(access, `id -u; stat -c %u ${directory} ${directory}/file`)).toBe(
          `${under.user.uid}\n`.repeat(3),
        );
      });

      test('an operation that the user may not do is permission_denied, and names the path', async context => {
        if (!isReal() || under.user === null) return context.skip();
        const { access } = await startAs(under.user.name);
        const denied = isError('permission_denied', /\/usr/);
        await expect(put(access, '/usr/file', 'x')).rejects.toSatisfy(denied);
        const options = { mode: null, recursive: false };
        await expect(access.makeDirectory('/usr/directory', options, signal())).rejects.toSatisfy(denied);
        await expect(access.openFile(closedFile, signal())).rejects.toSatisfy(isError('permission_denied'));
      });

      test('a closed file or directory is closed to its own user too', async context => {
        if (!isReal() || under.user === null) return context.skip();
        const { access, directory } = await startAs(under.user.name);
        await output(access, `cd ${directory}; touch file; mkdir closed; chmod 0 file closed`);
        const denied = isError('permission_denied');
        await expect(access.openFile(`${directory}/file`, signal())).rejects.toSatisfy(denied);
        await expect(put(access, `${directory}/closed/file`, 'x')).rejects.toSatisfy(denied);
        const options = { maxDepth: 5, maxEntries: 10 };
        await expect(access.listFiles(`${directory}/closed`, options, signal())).rejects.toSatisfy(denied);
        // The list omits the content of the directory and reports the others.
        const { entries } = await access.listFiles(directory, options, signal());
        expect(entries.map(({ path }) => path)).toEqual([`${directory}/closed`, `${directory}/file`]);
      });
    });

    describe('listFiles', () => {
      const all = { maxDepth: 10, maxEntries: 1000 };

      test('listFiles returns path, type, size, mode and time of each entry, ordered by path, without following links', async () => {
        const { access, directory } = await start();
        await output(
          access,
          `cd ${directory} && mkdir -m 700 a && printf 12345 > a/x && touch a-b && chmod 600 a-b && ln -s a link && mkfifo pipe`,
        );
        const { entries, truncated } = await access.listFiles(directory, all, signal());
        expect(truncated).toBe(false);
        expect(entries.map(({ path, type }) => `${path.slice(directory.length)} ${type}`)).toEqual([
          '/a directory',
          '/a-b file',
          '/a/x file',
          '/link symlink',
          '/pipe other',
        ]);
        expect(entries[0]).toMatchObject({ mode: 0o700 });
        expect(entries[1]).toMatchObject({ mode: 0o600, sizeBytes: 0 });
        expect(entries[2]).toMatchObject({ sizeBytes: 5 });
        for (const { modifiedAtMs } of entries) expect(Math.abs(modifiedAtMs - Date.now())).toBeLessThan(2 * WAIT_MS);
      });

      test('listFiles descends to the requested depth and no further', async () => {
        const { access, directory } = await start();
        await output(access, `mkdir -p ${directory}/1/2/3`);
        const paths = async (maxDepth: number) =>
          (await access.listFiles(directory, { ...all, maxDepth }, signal())).entries.length;
        expect([await paths(1), await paths(2), await paths(3), await paths(9)]).toEqual([1, 2, 3, 3]);
      });

      test('listFiles returns the requested number of entries and reports that more exist', async () => {
        const { access, directory } = await start();
        await output(access, `cd ${directory}; mkdir d; i=100; while [ $i -lt 150 ]; do : > d/$i; i=$((i+1)); done`);
        const list = (maxEntries: number) => access.listFiles(directory, { maxDepth: 2, maxEntries }, signal());
        const cut = await list(10);
        expect(cut.truncated).toBe(true);
        expect(cut.entries.map(({ path }) => path.slice(directory.length))).toEqual([
          '/d',
          ...Array.from({ length: 9 }, (_, index) => `/d/${100 + index}`),
        ]);
        expect(await list(51)).toMatchObject({ truncated: false });
        expect(await list(50)).toMatchObject({ truncated: true });
      });

      test('listFiles returns an empty list for an empty directory, and lists the target of a link', async () => {
        const { access, directory } = await start();
        expect(await access.listFiles(directory, all, signal())).toEqual({ entries: [], truncated: false });
        await output(access, `cd ${directory}; mkdir d; touch d/x; ln -s d link`);
        const { entries } = await access.listFiles(`${directory}/link/`, all, signal());
        expect(entries.map(({ path }) => path)).toEqual([`${directory}/link/x`]);
        const up = await access.listFiles(`${directory}/link/../d`, all, signal());
        expect(up.entries.map(({ path }) => path)).toEqual([`${directory}/d/x`]);
      });

      test('listFiles returns names with spaces, newlines and quotes unchanged', async () => {
        const { access, directory } = await start();
        const names = [`a b`, `new\nline`, `quo"te'`, `ümläut-日本-🙂`, `back\\slash`];
        for (const name of names) await put(access, `${directory}/${name}`, name);
        const { entries } = await access.listFiles(directory, all, signal());
        expect(entries.map(({ path }) => path.slice(directory.length + 1)).sort()).toEqual([...names].sort());
        for (const name of names) expect(await get(access, `${directory}/${name}`)).toBe(name);
      });

      test.each([
        ['a missing directory', 'missing', 'not_found'],
        ['a file', 'file', 'invalid_request'],
        ['a pipe, without waiting', 'pipe', 'invalid_request'],
        ['a file where a directory should be', 'file/below', 'not_found'],
      ] as const)('listFiles fails with the path for %s', async (_name, path, code) => {
        const { access, directory } = await start();
        await output(access, `cd ${directory} && touch file && mkfifo pipe`);
        await expect(access.listFiles(`${directory}/${path}`, all, signal())).rejects.toSatisfy(
          isError(code, new RegExp(path)),
        );
      });
    });

    describe('makeDirectory', () => {
      const mode = (access: SandboxAccess, path: string) => output(access, `stat -c '%F %a' ${path}`);

      test('makeDirectory creates a directory with exactly the given mode, by default 0755', async () => {
        const { access, directory } = await start();
        await access.makeDirectory(`${directory}/a`, { mode: null, recursive: false }, signal());
        await access.makeDirectory(`${directory}/b/`, { mode: 0o777, recursive: false }, signal());
        expect(await mode(access, `${directory}/a`)).toBe('directory 755\n');
        expect(await mode(access, `${directory}/b`)).toBe('directory 777\n');
      });

      test('makeDirectory with recursive creates missing parents and accepts an existing directory', async () => {
        const { access, directory } = await start();
        const options = { mode: 0o700, recursive: true };
        for (let turn = 0; turn < 2; turn++) await access.makeDirectory(`${directory}/a/b/c`, options, signal());
        expect(await mode(access, `${directory}/a`)).toBe('directory 755\n');
        expect(await mode(access, `${directory}/a/b/c`)).toBe('directory 700\n');
      });

      test.each([
        ['an existing directory', 'directory', false, 'already_exists'],
        ['an existing file', 'file', true, 'already_exists'],
        ['a file in the path', 'file/below', true, 'already_exists'],
        ['a dangling link', 'dangling', true, 'already_exists'],
        ['a missing parent', 'missing/below', false, 'not_found'],
      ] as const)('makeDirectory fails with the path for %s', async (_name, path, recursive, code) => {
        const { access, directory } = await start();
        await output(access, `cd ${directory} && mkdir directory && touch file && ln -s nowhere dangling`);
        await expect(
          access.makeDirectory(`${directory}/${path}`, { mode: null, recursive }, signal()),
        ).rejects.toSatisfy(isError(code, new RegExp(path.split('/')[0] ?? '')));
        expect(await output(access, `ls ${directory}`)).toBe('dangling\ndirectory\nfile\n');
      });
    });
  });
}

/** Returns the first piece of a stream without closing it. */
function firstOf(stream: Readable): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const take = (piece: Buffer) => {
      stream.pause();
      stream.off('error', reject).off('end', fail);
      resolve(piece);
    };
    const fail = () => reject(new Error('the stream ended'));
    stream.once('data', take).once('error', reject).once('end', fail).resume();
  });
}

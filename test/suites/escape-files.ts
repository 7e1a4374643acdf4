import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SandboxAccess } from '../../src/sandbox/access.ts';
import type { SandboxDriver, SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';
import { isError } from './sandbox-driver.ts';

const WAIT_MS = 90_000;
const RACES = 60;
const LOOKS = 100;
const SECRET = 'a secret of the host';
const ANY = { mode: null };
const COUNT_PROCESSES = 'ls /proc | grep -c "^[0-9]"';
const POLL = { timeout: WAIT_MS };

/** Sandboxes with the usual small programs inside, and root or `daemon` as their user. */
export interface EscapeFilesSubject {
  readonly driver: SandboxDriver;
  /** Path of `test/sandbox/code` inside, which is read-only. */
  readonly codePath: string;
  spec(changes?: Partial<SandboxSpec>): SandboxSpec;
  dispose(): Promise<void>;
}

export interface EscapeFilesFacts {
  readonly isSeen: boolean;
  readonly program?: string;
  readonly holdsFiles?: boolean;
}

/**
 * Tests how attacks with names and links end while the platform reads and writes files for its owner.
 * `isSeen`: the platform's process is a process of the sandbox and counts towards its limits; otherwise code
 * inside cannot see it. `program`: command line of that process. `holdsFiles`: files below /tmp are in the
 * memory of the sandbox.
 */
export function describeEscapeFiles(
  name: string,
  { isSeen, program = 'rookery: init', holdsFiles = isSeen }: EscapeFilesFacts,
  create: () => Promise<EscapeFilesSubject>,
  makeMs?: number,
): void {
  describe(`files of ${name}`, { timeout: 120_000 }, () => {
    let fixture: EscapeFilesSubject;
    let driver: SandboxDriver;
    let outside: string;
    let workspace: string;
    /** Sandbox for tests that leave nothing in it. */
    let shared: SandboxHandle | undefined;

    beforeAll(async () => {
      fixture = await create();
      driver = fixture.driver;
      await available(driver);
      outside = mkdtempSync(join(tmpdir(), 'rookery-outside-'));
      writeFileSync(join(outside, 'secret'), SECRET, { mode: 0o644 });
      workspace = mkdtempSync(join(tmpdir(), 'rookery-workspace-'));
    }, makeMs);

    afterEach(async () => {
      for (const { handle } of await driver.list()) {
        if (handle.instanceId !== shared?.instanceId) await driver.remove(handle);
      }
      expect(readdirSync(outside)).toEqual(['secret']);
      expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe(SECRET);
      for (const name of readdirSync(workspace)) rmSync(join(workspace, name), { recursive: true, force: true });
    });

    afterAll(async () => {
      await fixture.dispose();
      for (const directory of [outside, workspace]) rmSync(directory, { recursive: true, force: true });
    });

    const signal = () => AbortSignal.timeout(WAIT_MS);

    const accessOf = (handle: SandboxHandle): SandboxAccess => {
      const access = driver.access?.(handle);
      if (access === undefined) throw new Error('the driver gives no access');
      return access;
    };

    /** Starts a sandbox with the workspace at /data. */
    const startOne = async (user?: string) => {
      const { mounts, rootfs } = fixture.spec();
      const workspaceMount = { source: workspace, target: '/data', readonly: false };
      const spec = fixture.spec({
        mounts: [...mounts, workspaceMount],
        rootfs: { ...rootfs, ...(user !== undefined && { user }) },
      });
      return (await driver.start(spec, signal())).handle;
    };
    const start = async (user?: string) => accessOf(await startOne(user));
    const share = async () => {
      shared ??= await startOne();
      return accessOf(shared);
    };

    const get = async (access: SandboxAccess, path: string) => {
      const file = await access.openFile(path, signal());
      return await text(file.read(0, file.sizeBytes));
    };

    const put = (access: SandboxAccess, path: string, content = 'new') =>
      access.writeFile(path, ANY, Readable.from([content]), signal());

    const shell = (access: SandboxAccess, script: string) =>
      access.openExec({ argv: ['sh', '-c', script], workingDir: '', env: {}, terminal: null }, signal());

    const run = async (access: SandboxAccess, script: string) => {
      const exec = await shell(access, script);
      const [stdout] = await Promise.all([text(exec.stdout), text(exec.stderr), exec.ended]);
      return stdout;
    };

    const isKept = isError('not_found');

    test.each([
      ['..', (path: string) => `/data/${'../'.repeat(20)}${path.slice(1)}`],
      ['an absolute path', (path: string) => path],
      ['a link to an absolute path', () => '/data/absolute/secret'],
      ['a link with ..', () => '/data/relative/secret'],
      ['a link to the file', () => '/data/file'],
      ['/proc/self/root', (path: string) => `/proc/self/root${path}`],
      ['/proc/self/cwd', (path: string) => `/proc/self/cwd${path}`],
      ['the root of init', (path: string) => `/proc/1/root${path}`],
      ['the directory of init', (path: string) => `/proc/1/cwd${path}`],
    ])('a path with %s does not lead out of the sandbox', async (_name, pathOf) => {
      const access = await share();
      symlinkSync(outside, join(workspace, 'absolute'));
      symlinkSync(`${'../'.repeat(20)}${outside.slice(1)}`, join(workspace, 'relative'));
      symlinkSync(join(outside, 'secret'), join(workspace, 'file'));
      const path = pathOf(join(outside, 'secret'));
      const isOut = (error: unknown) => isKept(error) || isError('permission_denied')(error);
      await expect(get(access, path)).rejects.toSatisfy(isOut);
      if (path !== '/data/file') {
        await expect(put(access, path)).rejects.toSatisfy(isOut);
        const directory = path.slice(0, -'/secret'.length);
        await expect(access.listFiles(directory, { maxDepth: 3, maxEntries: 100 }, signal())).rejects.toSatisfy(isOut);
        await expect(
          access.makeDirectory(`${directory}/new`, { mode: null, recursive: false }, signal()),
        ).rejects.toSatisfy(isOut);
      }
    });

    test('a recursive directory behind a link to the outside is made inside or not at all', async () => {
      const access = await start();
      symlinkSync(outside, join(workspace, 'link'));
      const make = access.makeDirectory('/data/link/a/b', { mode: null, recursive: true }, signal());
      // The link has no target inside and occupies the name.
      await expect(make).rejects.toSatisfy(isError('already_exists'));
      await run(access, `mkdir -p ${outside}`);
      await access.makeDirectory('/data/link/a/b', { mode: null, recursive: true }, signal());
      expect(await run(access, `ls -d ${outside}/a/b`)).toBe(`${outside}/a/b\n`);
    });

    test.each([
      ['an absolute path', (path: string) => path],
      ['a path with ..', (path: string) => `${'../'.repeat(20)}${path.slice(1)}`],
      ['the root of init', (path: string) => `/proc/1/root${path}`],
    ])('a file written over a link to %s outside is written inside or not at all', async (_name, targetOf) => {
      const access = await start();
      symlinkSync(targetOf(join(outside, 'secret')), join(workspace, 'link'));
      const isOut = (error: unknown) => isKept(error) || isError('permission_denied')(error);
      await expect(put(access, '/data/link')).rejects.toSatisfy(isOut);
      expect(lstatSync(join(workspace, 'link')).isSymbolicLink()).toBe(true);
      await run(access, `mkdir -p ${outside}`);
      await put(access, '/data/link').catch((error: unknown) => expect(error).toSatisfy(isOut));
    });

    test('a file that is swapped for a link to the outside while it is written leads nowhere', async () => {
      const access = await start();
      const swapper = await shell(
        access,
        `cd /data; echo inside > real; ln -s ${outside}/secret link; echo up; while :; do ln -sfn ${outside}/secret way; ln -f real way; done`,
      );
      swapper.stdout.resume();
      await new Promise(resolve => swapper.stdout.once('data', resolve));
      for (let race = 0; race < RACES; race++) {
        const written = await put(access, '/data/way').catch((error: unknown) => error);
        if (written instanceof Error) expect(written).toSatisfy(isKept);
      }
      swapper.kill();
      await swapper.ended;
    });

    test('a directory that is swapped for a link during reads and writes leads nowhere', async () => {
      const access = await start();
      mkdirSync(join(workspace, 'real'));
      writeFileSync(join(workspace, 'real/secret'), 'inside');
      const swapper = await shell(
        access,
        `cd /data; ln -s ${outside} link; ln -s real way; echo up; while :; do ln -sfn link way; ln -sfn real way; done`,
      );
      swapper.stdout.resume();
      await new Promise(resolve => swapper.stdout.once('data', resolve));
      for (let race = 0; race < RACES; race++) {
        const read = await get(access, '/data/way/secret').catch((error: unknown) => error);
        if (typeof read === 'string') expect(['inside', 'new']).toContain(read);
        else expect(read).toSatisfy(isKept);
        const written = await put(access, '/data/way/secret').catch((error: unknown) => error);
        if (written instanceof Error) expect(written).toSatisfy(isKept);
        const options = { mode: null, recursive: true };
        await access.makeDirectory('/data/way/made', options, signal()).catch(() => undefined);
      }
      swapper.kill();
      await swapper.ended;
      expect(readdirSync(join(workspace, 'real')).sort()).toEqual(['made', 'secret']);
    });

    test('a file that is swapped for a pipe during a read does not block', async () => {
      const access = await start();
      const swapper = await shell(
        access,
        'cd /data; mkfifo pipe; echo content > file; echo up; while :; do ln -f pipe way; ln -f file way; done',
      );
      swapper.stdout.resume();
      await new Promise(resolve => swapper.stdout.once('data', resolve));
      for (let race = 0; race < RACES; race++) {
        const read = await get(access, '/data/way').catch((error: unknown) => error);
        if (read !== 'content\n')
          expect(read).toSatisfy((error: unknown) => isKept(error) || isError('invalid_request')(error));
      }
      swapper.kill();
      await swapper.ended;
    });

    test.runIf(!isSeen)('code in the sandbox does not see the process that writes and reads its files', async () => {
      const access = await start('daemon');
      await run(access, 'head -c 1000000 /dev/zero > /tmp/file');
      // The engine may collect the process of the previous command late. Two equal counts are reliable.
      let before = '';
      const isSettled = async () => {
        const last = before;
        before = await run(access, COUNT_PROCESSES);
        return before === last;
      };
      await expect.poll(isSettled, POLL).toBe(true);
      const file = await access.openFile('/tmp/file', signal());
      await expect.poll(() => run(access, COUNT_PROCESSES), POLL).toBe(before);
      file.close();
    });

    test.runIf(isSeen)(
      'a process that reads and writes files cannot be inspected or traced, and has the sandbox’s user',
      async () => {
        const access = await start('daemon');
        await run(access, 'head -c 1000000 /dev/zero > /tmp/file');
        const file = await access.openFile('/tmp/file', signal());
        const script = [
          'for pid in $(ls /proc | grep "^[0-9]"); do',
          `  [ $pid != 1 ] && grep -aq "^${program}" /proc/$pid/cmdline || continue`,
          '  [ "$(awk "/^Uid/ {print \\$2, \\$3, \\$4, \\$5}" /proc/$pid/status)" = "$(id -u) $(id -u) $(id -u) $(id -u)" ] && echo user',
          '  ls /proc/$pid/fd || readlink /proc/$pid/root || head -c1 /proc/$pid/mem || head -c1 /proc/$pid/environ || echo closed',
          'done 2>/dev/null',
        ].join('\n');
        // Two processes appear: that of the file operation and that of this command.
        expect(await run(access, script)).toBe('user\nclosed\nuser\nclosed\n');
        file.close();
      },
    );

    test.runIf(isSeen)('a process that reads files cannot be inspected from its first moment on', async () => {
      const access = await start('daemon');
      await run(access, 'echo content > /tmp/file');
      // The script prints the status of each process that it could open. A thread of the runtime, which is a
      // process of the user, has a path too, although no list of /proc shows it.
      const script = [
        'import os, sys',
        'last = os.getpid()',
        'print("up", flush=True)',
        'while True:',
        '    for pid in range(last + 1, last + 16):',
        '        try:',
        '            os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR))',
        '            status = open("/proc/%d/status" % pid).read()',
        '            if "\\nTgid:\\t%d\\n" % pid in status: print(status, flush=True)',
        '        except PermissionError:',
        '            # It is tried until it is gone.',
        '            last = pid - 1',
        '            break',
        '        except OSError:',
        '            pass',
      ].join('\n');
      const request = { argv: ['python3', '-c', script], workingDir: '', env: {}, terminal: null };
      const racer = await access.openExec(request, signal());
      let opened = '';
      racer.stderr.resume();
      racer.stdout.on('data', chunk => (opened += String(chunk)));
      await expect.poll(() => opened, POLL).toBe('up\n');
      for (let race = 0; race < LOOKS; race++) expect(await get(access, '/tmp/file')).toBe('content\n');
      racer.kill();
      await racer.ended;
      expect(opened).toBe('up\n');
    });

    test('a file access reads neither its own memory nor its descriptors', async () => {
      const access = await share();
      for (const path of ['/proc/self/mem', '/proc/self/environ', '/proc/self/maps']) {
        const read = await get(access, path).catch((error: unknown) => error);
        if (typeof read === 'string') expect(read).toBe('');
      }
      for (let descriptor = 0; descriptor < 10; descriptor++) {
        await expect(get(access, `/proc/self/fd/${descriptor}`)).rejects.toThrow();
      }
      await expect(put(access, '/proc/self/mem')).rejects.toThrow();
    });

    test.each(['/dev/zero', '/dev/tty', '/dev/ptmx', '/dev/stdin', '/proc/self/fd/0'])(
      'the file %s is not opened',
      async path => {
        const access = await share();
        await expect(get(access, path)).rejects.toSatisfy(
          (error: unknown) => isError('invalid_request')(error) || isKept(error) || isError('permission_denied')(error),
        );
      },
    );

    test('a list stays inside of the sandbox when directories are swapped for links meanwhile', async () => {
      const access = await start();
      const swapper = await shell(
        access,
        `cd /data; mkdir -p a/real; ln -s ${outside} out; echo up; while :; do mv a/real b; ln -s ${outside} a/real; rm a/real; mv b a/real; done`,
      );
      swapper.stdout.resume();
      await new Promise(resolve => swapper.stdout.once('data', resolve));
      for (let race = 0; race < RACES; race++) {
        const { entries } = await access.listFiles('/data', { maxDepth: 9, maxEntries: 1000 }, signal());
        expect(entries.filter(({ path }) => path.includes('secret'))).toEqual([]);
      }
      swapper.kill();
      await swapper.ended;
    });

    test('a name that is not UTF-8 is reported with lone surrogates, by which it can be read, replaced and listed', async () => {
      const access = await share();
      await run(access, 'cd /data; printf content > "$(printf \'a\\377b\')"; mkdir "$(printf \'\\200\')"');
      const { entries } = await access.listFiles('/data', { maxDepth: 2, maxEntries: 10 }, signal());
      expect(entries.map(({ path }) => path).sort()).toEqual(['/data/a\udcffb', '/data/\udc80'].sort());
      expect(await get(access, '/data/a\udcffb')).toBe('content');
      await put(access, '/data/\udc80/c', 'below');
      await put(access, '/data/a\udcffb', 'new');
      expect(await run(access, 'cd /data; cat "$(printf \'a\\377b\')" "$(printf \'\\200\')/c"')).toBe('newbelow');
      await expect(get(access, '/data/\ud800')).rejects.toSatisfy(isError('invalid_request'));
    });

    test('a read-only mount stays unchanged', async () => {
      const access = await share();
      const denied = isError('permission_denied', /read-only/);
      await expect(put(access, `${fixture.codePath}/behaviours.py`)).rejects.toSatisfy(denied);
      const options = { mode: null, recursive: true };
      await expect(access.makeDirectory(`${fixture.codePath}/new/er`, options, signal())).rejects.toSatisfy(denied);
      expect(existsSync(join(import.meta.dirname, '../sandbox/code/new'))).toBe(false);
    });

    test.runIf(isSeen)('a terminal of one sandbox is not seen in another', async () => {
      const first = await start();
      const request = { argv: ['cat'], workingDir: '', env: {}, terminal: { columns: 80, rows: 24 } };
      const exec = await first.openExec(request, signal());
      expect(await run(first, 'ls /dev/pts')).toBe('0\nptmx\n');
      const second = await start();
      expect(await run(second, 'ls /dev/pts')).toBe('ptmx\n');
      exec.kill();
      await exec.ended;
    });

    test.runIf(holdsFiles)(
      'a file that fills the memory of the sandbox ends its upload and not the agent',
      async () => {
        const { mounts } = fixture.spec();
        const { handle } = await driver.start(fixture.spec({ mounts, memoryMb: 64 }), signal());
        const access = accessOf(handle);
        const content = Readable.from(
          (function* () {
            for (let count = 0; count < 4096; count++) yield Buffer.alloc(64 * 1024);
          })(),
        );
        await expect(access.writeFile('/tmp/large', ANY, content, signal())).rejects.toSatisfy(
          isError('resource_exhausted', /\/tmp\/large/),
        );
        expect(await driver.inspect(handle)).toEqual({ state: 'running' });
        expect(await run(access, 'find /tmp -xdev -type f')).toBe('');
      },
    );
  });
}

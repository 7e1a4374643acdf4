import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ErrorCode } from '../../src/core/error.ts';
import { ServiceError } from '../../src/core/error.ts';
import { Channel } from '../../src/runtime/channel.ts';
import type {
  DriverCapabilities,
  ExecRequest,
  LogRequest,
  SandboxDriver,
  SandboxHandle,
  SandboxSpec,
  StartedSandbox,
} from '../../src/sandbox/driver.ts';
import { available } from '../parts/available.ts';

/**
 * Entries of the code inside that the suite calls. `test/sandbox/code/behaviours.py` is the reference.
 * Without `real`, which a driver without real sandboxes omits, only the view of the control plane is tested.
 */
export interface DriverEntries {
  /** Returns the event. */
  readonly echo: string;
  /** Adds 1 to a number that the instance keeps and returns it. */
  readonly count: string;
  /** Ends the whole instance with exit code `event.code`. */
  readonly exit: string;
  /** Prints `line <n>` for n from `event.from` up to `event.to`. */
  readonly printLines: string;
  readonly real?: {
    /** Sends `event.signal` to its own process. */
    readonly killSelf: string;
    /** Returns the environment. */
    readonly environment: string;
    /** Returns `{uid, gid, directory, …}` of its own process. */
    readonly process: string;
    /** Writes `event.text` to `event.path` and returns the owner's uid. */
    readonly write: string;
    /** Returns the text of `event.path`. */
    readonly read: string;
    /** Allocates memory without limit. */
    readonly eatMemory: string;
    /** Forks without limit. */
    readonly forkBomb: string;
    /** Leaves processes running in their own sessions. */
    readonly leaveChildren: string;
  };
}

/** A driver under test, with its surroundings. */
export interface DriverUnderTest {
  readonly driver: SandboxDriver;
  readonly entries: DriverEntries;
  /** Directory of the code, as INIT names it. */
  readonly codePath: string;
  /** Returns a spec that this driver can start, code included. */
  spec(): SandboxSpec;
  /**
   * Opens a second driver over the same engine, as a restart of the control plane does; null when that is
   * impossible.
   */
  reopen: (() => SandboxDriver) | null;
  /** True if the engine reserves requested memory and refuses more than it has. */
  readonly reservesMemory?: true;
  /** Stages of a start that the driver reports, in order. Without it the driver reports none. */
  readonly stages?: readonly string[];
  /** A user that exists in sandboxes, with its uid; null when the user cannot be changed. */
  readonly user: { readonly name: string; readonly uid: number } | null;
  /** Removes everything that `create` made. */
  dispose(): Promise<void>;
}

const TEST_TIMEOUT_MS = 60_000;
const WAIT_MS = 30_000;

/** Tests the contract of `src/sandbox/driver.ts`. */
export function describeDriver(name: string, create: () => Promise<DriverUnderTest>, makeMs?: number): void {
  describe(name, { timeout: TEST_TIMEOUT_MS }, () => {
    let under: DriverUnderTest;
    let driver: SandboxDriver;
    let capabilities: DriverCapabilities;
    const channels: Channel[] = [];
    const directories: string[] = [];
    /** Sandbox that several tests share to run commands, because a start takes a second on some drivers. */
    let standing: SandboxHandle | null = null;

    beforeAll(async () => {
      under = await create();
      driver = under.driver;
      const probe = await available(driver);
      capabilities = probe.capabilities;
    }, makeMs);

    afterEach(async () => {
      for (const channel of channels.splice(0)) channel.close();
      for (const { instanceId, handle } of await driver.list()) {
        if (instanceId !== standing?.instanceId) await driver.remove(handle);
      }
      for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
    });

    afterAll(async () => {
      await under.dispose();
    });

    const start = async (changes: Partial<SandboxSpec> = {}) => {
      const spec = { ...under.spec(), ...changes };
      const started = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
      return { spec, ...started };
    };

    const open = async ({ spec, endpoint }: StartedSandbox & { spec: SandboxSpec }, entry: string) => {
      const channel = await Channel.open(endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
      channels.push(channel);
      const outcome = await channel.initialize(initOf(spec, under.codePath, entry), AbortSignal.timeout(WAIT_MS));
      if (!outcome.ok) throw new Error(outcome.error.message);
      return channel;
    };

    const startWith = async (entry: string, changes: Partial<SandboxSpec> = {}) => {
      const started = await start(changes);
      return { ...started, channel: await open(started, entry) };
    };

    const directory = () => {
      const path = mkdtempSync(join(tmpdir(), 'rookery-suite-'));
      directories.push(path);
      return path;
    };

    describe('start of a sandbox', () => {
      test('start resolves when the runtime accepts connections', async () => {
        const { channel } = await startWith(under.entries.echo);
        expect(channel.hello.version).toBe(1);
        expect(await call(channel, { a: [1, 'ü'] })).toEqual({ a: [1, 'ü'] });
      });

      test('start returns a handle that is plain JSON with version, driver and instance', async () => {
        const { handle, spec, endpoint } = await start();
        expect(JSON.parse(JSON.stringify(handle))).toEqual(handle);
        expect(handle).toMatchObject({ version: 1, driver: driver.name, instanceId: spec.instanceId, endpoint });
      });

      test('start reports no more isolation in its facts than the probe', async () => {
        const { facts } = await start();
        for (const layer of facts.isolation) expect(capabilities.isolation).toContain(layer);
        expect(facts.sandboxId).not.toBe('');
      });

      test('start reports the known durations of its stages', async () => {
        const { stages } = await start();
        expect(stages && Object.keys(stages)).toEqual(under.stages);
        for (const ms of Object.values(stages ?? {})) expect(ms).toBeGreaterThanOrEqual(0);
      });

      test('start runs many sandboxes at once, each with separate state', async () => {
        const all = await Promise.all(Array.from({ length: 8 }, () => startWith(under.entries.count)));
        const counts = await Promise.all(all.map(({ channel }) => call(channel, {})));
        expect(counts).toEqual(all.map(() => 1));
        expect((await driver.list()).map(({ instanceId }) => instanceId).sort()).toEqual(
          all.map(({ spec }) => spec.instanceId).sort(),
        );
      });

      test('a start that is aborted before its beginning fails with deadline_exceeded and leaves no residue', async () => {
        await expect(driver.start(under.spec(), AbortSignal.abort())).rejects.toSatisfy(isError('deadline_exceeded'));
        expect(await driver.list()).toEqual([]);
      });

      test('a start that is aborted at any moment leaves no residue', async () => {
        for (let turns = 0; turns < 12; turns++) {
          const controller = new AbortController();
          const starting = driver.start(under.spec(), controller.signal);
          for (let turn = 0; turn < turns * 8; turn++) await new Promise(resolve => setImmediate(resolve));
          controller.abort();
          const result = await starting.then(
            started => started,
            (error: unknown) => error,
          );
          if (result instanceof Error) {
            expect(result).toSatisfy(isError('deadline_exceeded'));
            expect(await driver.list()).toEqual([]);
          } else {
            await driver.remove((result as StartedSandbox).handle);
          }
        }
      });
    });

    describe('life and end of a sandbox', () => {
      test('inspect and list report a running sandbox', async () => {
        const { handle, spec } = await start();
        expect(await driver.inspect(handle)).toEqual({ state: 'running' });
        expect(await driver.list()).toEqual([{ instanceId: spec.instanceId, handle, running: true }]);
      });

      test('wait resolves with the exit code when the code ends the instance', async () => {
        const { handle, channel } = await startWith(under.entries.exit);
        const waiting = driver.wait(handle);
        await expect(call(channel, { code: 3 })).rejects.toThrow();
        const exit = await waiting;
        expect(exit).toMatchObject({ code: 3, signal: null, oomKilled: false });
        expect(await driver.inspect(handle)).toEqual({ state: 'exited', exit });
        expect(await driver.wait(handle)).toEqual(exit);
        expect((await driver.list())[0]?.running).toBe(false);
      });

      test('wait ends with deadline_exceeded when its signal aborts, and the sandbox continues', async () => {
        const { handle } = await start();
        const controller = new AbortController();
        const waiting = driver.wait(handle, controller.signal);
        controller.abort();
        await expect(waiting).rejects.toSatisfy(isError('deadline_exceeded'));
        expect(await driver.inspect(handle)).toEqual({ state: 'running' });
      });

      test('stop waits for the runtime to end, and a second stop succeeds', async () => {
        const { handle, channel } = await startWith(under.entries.echo);
        await driver.stop(handle, 10_000);
        await channel.closed;
        expect(await driver.inspect(handle)).toMatchObject({ state: 'exited', exit: { code: 0, signal: null } });
        await driver.stop(handle, 10_000);
      });

      test('stop without grace kills the sandbox', async () => {
        const { handle } = await startWith(under.entries.echo);
        await driver.stop(handle, 0);
        expect(await driver.inspect(handle)).toMatchObject({ state: 'exited' });
      });

      test('remove of a running sandbox ends it without residue, and a second remove succeeds', async () => {
        const { handle, channel } = await startWith(under.entries.echo);
        await driver.remove(handle);
        await channel.closed;
        expect(await driver.inspect(handle)).toEqual({ state: 'gone' });
        expect(await driver.list()).toEqual([]);
        await driver.remove(handle);
        await driver.stop(handle, 1000);
        expect(await driver.wait(handle)).toMatchObject({ code: null });
      });

      test('a paused sandbox is known to the next server and goes on with its memory', async context => {
        if (driver.pause === undefined || driver.resume === undefined) return context.skip();
        const { handle, spec, endpoint, channel } = await startWith(under.entries.count);
        expect(await call(channel, {})).toBe(1);
        channel.close();
        await driver.pause(handle);
        await driver.pause(handle);
        const next = under.reopen?.() ?? driver;
        try {
          expect(await next.inspect(handle)).toEqual({ state: 'paused' });
          expect(await next.list()).toEqual([{ instanceId: spec.instanceId, handle, running: true }]);
          await next.resume?.(handle);
          expect(await next.inspect(handle)).toEqual({ state: 'running' });
          await next.resume?.(handle);
        } finally {
          if (next !== driver) await next.close();
        }
        const again = await Channel.open(endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
        channels.push(again);
        expect(await call(again, {})).toBe(2);
      });

      test('stop and remove end a paused sandbox without residue', async context => {
        if (driver.pause === undefined) return context.skip();
        for (const graceMs of [0, 2_000]) {
          const { handle } = await start();
          await driver.pause(handle);
          await driver.stop(handle, graceMs);
          expect((await driver.inspect(handle)).state).toBe('exited');
          await driver.remove(handle);
        }
        const { handle } = await start();
        await driver.pause(handle);
        await driver.remove(handle);
        expect(await driver.inspect(handle)).toEqual({ state: 'gone' });
        expect(await driver.list()).toEqual([]);
        await expect(driver.pause(handle)).rejects.toBeInstanceOf(ServiceError);
      });

      test('two waits and a stop at the same time agree', async () => {
        const { handle } = await startWith(under.entries.echo);
        const [first, second] = await Promise.all([
          driver.wait(handle),
          driver.wait(handle),
          driver.stop(handle, 10_000),
          driver.stop(handle, 10_000),
        ]);
        expect(first).toEqual(second);
      });
    });

    describe('sandboxes after a restart of the control plane', () => {
      test('a stored handle is enough to inspect, call, wait, exec, read logs, stop and remove', async context => {
        if (under.reopen === null) return context.skip();
        const { handle, channel, spec } = await startWith(under.entries.count);
        expect(await call(channel, {})).toBe(1);
        channel.close();
        const stored = JSON.parse(JSON.stringify(handle)) as SandboxHandle;
        const next = under.reopen();
        try {
          expect(await next.inspect(stored)).toEqual({ state: 'running' });
          expect(await next.list()).toEqual([{ instanceId: spec.instanceId, handle, running: true }]);
          const again = await Channel.open(stored.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
          channels.push(again);
          expect(await call(again, {})).toBe(2);
          const waiting = next.wait(stored);
          expect(await next.exec(stored, command(['true']), AbortSignal.timeout(WAIT_MS))).toMatchObject({
            returncode: 0,
          });
          await next.stop(stored, 10_000);
          expect(await waiting).toMatchObject({ code: 0 });
          await next.remove(stored);
          expect(await next.list()).toEqual([]);
        } finally {
          await next.close();
        }
      });

      test('a sandbox that ended during the restart reports its exit', async context => {
        if (under.reopen === null) return context.skip();
        const { handle, channel } = await startWith(under.entries.exit);
        await expect(call(channel, { code: 7 })).rejects.toThrow();
        await driver.wait(handle);
        const next = under.reopen();
        try {
          expect(await next.wait(handle)).toMatchObject({ code: 7, signal: null });
          expect(await next.inspect(handle)).toMatchObject({ state: 'exited', exit: { code: 7 } });
        } finally {
          await next.close();
        }
      });
    });

    describe('exec', () => {
      const signal = () => AbortSignal.timeout(WAIT_MS);

      const enter = async () => {
        if (standing === null || (await driver.inspect(standing)).state !== 'running')
          standing = (await start()).handle;
        return standing;
      };

      afterAll(async () => {
        if (standing !== null) await driver.remove(standing);
        standing = null;
      });

      test('exec returns the return code and both outputs', async () => {
        const handle = await enter();
        const result = await driver.exec(handle, command(['sh', '-c', 'echo out; echo err >&2; exit 5']), signal());
        expect(result).toEqual({ returncode: 5, stdout: 'out\n', stderr: 'err\n', truncated: false });
      });

      test('exec passes standard input, environment and directory', async () => {
        const { handle } = await start({ env: { ...under.spec().env, FROM_SPEC: 'spec' } });
        const request = { ...command(['sh', '-c', 'cat; echo " $FROM_SPEC $ADDED"; pwd']), stdin: 'typed' };
        const result = await driver.exec(handle, { ...request, env: { ADDED: 'added' }, workingDir: '/tmp' }, signal());
        expect(result.stdout).toBe('typed spec added\n/tmp\n');
      });

      test('exec resolves a relative directory from that of the sandbox', async context => {
        if (under.entries.real === undefined) return context.skip();
        const run = async (workingDir: string, asked: string) => {
          const { handle } = await start({ workingDir });
          return await driver.exec(handle, { ...command(['sh', '-c', 'pwd']), workingDir: asked }, signal());
        };
        expect(await run('/usr', 'share')).toMatchObject({ returncode: 0, stdout: '/usr/share\n' });
        expect(await run('/', './usr')).toMatchObject({ returncode: 0, stdout: '/usr\n' });
        const missing = await run('/usr', 'no-such-directory');
        expect(missing).toMatchObject({ returncode: 127, stdout: '' });
        expect(missing.stderr).toMatch(/^cannot run sh in (\/usr\/)?no-such-directory: no such file/i);
      });

      test('exec reads large standard input and returns large outputs completely', async () => {
        const handle = await enter();
        const stdin = 'x'.repeat(3_000_000);
        const result = await driver.exec(handle, { ...command(['cat']), stdin, maxOutputBytes: 4_000_000 }, signal());
        expect(result.stdout.length).toBe(stdin.length);
        expect(result.truncated).toBe(false);
      });

      test('exec truncates outputs at their limit and reports the truncation', async () => {
        const handle = await enter();
        const request = command(['sh', '-c', 'head -c 100000 /dev/zero | tr "\\0" a']);
        const result = await driver.exec(handle, { ...request, maxOutputBytes: 1000 }, signal());
        expect(result).toMatchObject({ returncode: 0, stdout: 'a'.repeat(1000), truncated: true });
      });

      test('exec ends the whole process group at the timeout, with return code -1 and the output so far', async () => {
        const handle = await enter();
        const request = { ...command(['sh', '-c', 'echo before; sleep 600 & sleep 600']), timeoutMs: 300 };
        const result = await driver.exec(handle, request, signal());
        expect(result).toMatchObject({ returncode: -1, stdout: 'before\n' });
      });

      test('exec ends the process group when the caller disconnects', async () => {
        const handle = await enter();
        const controller = new AbortController();
        // Number that no other process of the machine has in its command line.
        const marker = `600.${process.pid}${Date.now()}`;
        const running = driver.exec(handle, command(['sleep', marker]), controller.signal);
        controller.abort();
        await Promise.allSettled([running]);
        if (under.entries.real === undefined) return;
        const alive = async () => {
          const listed = await driver.exec(handle, command(['sh', '-c', 'cat /proc/[0-9]*/cmdline']), signal());
          return listed.stdout.includes(`sleep\0${marker}`);
        };
        await expect.poll(alive, { timeout: WAIT_MS }).toBe(false);
      });

      test('exec does not wait for background processes of the command', async context => {
        if (under.entries.real === undefined) return context.skip();
        const handle = await enter();
        const result = await driver.exec(handle, command(['sh', '-c', 'sleep 600 & echo done']), signal());
        expect(result).toMatchObject({ returncode: 0, stdout: 'done\n' });
      });

      test('exec returns 127 and a line of error output for a missing program', async () => {
        const handle = await enter();
        const result = await driver.exec(handle, command(['no-such-program']), signal());
        expect(result.returncode).toBe(127);
        expect(result.stderr).toContain('no-such-program');
      });

      test('exec returns output that is not UTF-8 with replacement characters', async () => {
        const handle = await enter();
        const result = await driver.exec(handle, command(['printf', 'a\\377b']), signal());
        expect(result.stdout).toBe('a\ufffdb');
      });

      test('exec fails at once in a sandbox that has ended', async () => {
        const { handle } = await start();
        await driver.stop(handle, 10_000);
        await expect(driver.exec(handle, command(['true']), signal())).rejects.toBeInstanceOf(ServiceError);
      });
    });

    describe('stats and logs', () => {
      test('stats return memory, cpu time and processes', async () => {
        const { handle } = await startWith(under.entries.echo);
        const stats = await driver.stats(handle);
        expect(stats.memoryBytes).toBeGreaterThan(0);
        expect(stats.cpuMicros).toBeGreaterThanOrEqual(0);
        expect(stats.processes).toBeGreaterThan(0);
      });

      test('logs return whole lines, oldest first, and tail the last n of them', async () => {
        const { handle, channel } = await startWith(under.entries.printLines);
        await call(channel, { from: 0, to: 1000 });
        await expect.poll(() => logs(driver, handle), { timeout: WAIT_MS }).toHaveLength(1000);
        const all = await logs(driver, handle);
        expect(all[0]).toBe('line 0');
        expect(all.at(-1)).toBe('line 999');
        expect(await logs(driver, handle, { tail: 3 })).toEqual(['line 997', 'line 998', 'line 999']);
        expect(await logs(driver, handle, { tail: 0 })).toEqual([]);
        expect(await logs(driver, handle, { tail: 5000 })).toHaveLength(1000);
      });

      test('logs with since omit older lines, and logs with until newer ones', async () => {
        const { handle, channel } = await startWith(under.entries.printLines);
        await call(channel, { from: 0, to: 10 });
        await expect.poll(() => logs(driver, handle), { timeout: WAIT_MS }).toHaveLength(10);
        const sinceMs = Date.now() + 5;
        await expect.poll(() => Date.now(), { interval: 1 }).toBeGreaterThan(sinceMs);
        await call(channel, { from: 10, to: 12 });
        await expect
          .poll(() => logs(driver, handle, { sinceMs }), { timeout: WAIT_MS })
          .toEqual(['line 10', 'line 11']);
        expect(await logs(driver, handle, { sinceMs: Date.now() + 60_000 })).toEqual([]);
        expect(await logs(driver, handle, { untilMs: sinceMs })).toEqual((await logs(driver, handle)).slice(0, 10));
        expect(await logs(driver, handle, { sinceMs, untilMs: sinceMs })).toEqual([]);
      });

      test('logs with follow return lines as they arrive and end with the sandbox', async () => {
        const { handle, channel } = await startWith(under.entries.printLines);
        await call(channel, { from: 0, to: 2 });
        const seen: string[] = [];
        const following = (async () => {
          for await (const chunk of driver.logs(
            handle,
            { tail: null, sinceMs: null, follow: true },
            AbortSignal.timeout(WAIT_MS),
          )) {
            expect(chunk.at(-1)).toBe(10);
            seen.push(...chunk.toString().trimEnd().split('\n'));
          }
        })();
        await expect.poll(() => seen, { timeout: WAIT_MS }).toHaveLength(2);
        await call(channel, { from: 2, to: 5 });
        await expect.poll(() => seen, { timeout: WAIT_MS }).toHaveLength(5);
        await driver.stop(handle, 10_000);
        await following;
        expect(seen).toEqual(['line 0', 'line 1', 'line 2', 'line 3', 'line 4']);
      });

      test('logs with follow end when the signal aborts', async () => {
        const { handle } = await start();
        const controller = new AbortController();
        const lines = driver.logs(handle, { tail: null, sinceMs: null, follow: true }, controller.signal);
        const ended = (async () => {
          for await (const _chunk of lines);
        })();
        controller.abort();
        await ended;
      });

      test('logs of a sandbox that has ended are kept until it is removed', async () => {
        const { handle, channel } = await startWith(under.entries.printLines);
        await call(channel, { from: 0, to: 3 });
        await driver.stop(handle, 10_000);
        expect(await logs(driver, handle)).toEqual(['line 0', 'line 1', 'line 2']);
        await driver.remove(handle);
        expect(await logs(driver, handle)).toEqual([]);
      });
    });

    describe('code in a sandbox', () => {
      test('a signal that ends the code is reported by its name', async context => {
        const { real } = under.entries;
        if (real === undefined) return context.skip();
        const { handle, channel } = await startWith(real.killSelf);
        await expect(call(channel, { signal: 11 })).rejects.toThrow();
        expect(await driver.wait(handle)).toMatchObject({ code: null, signal: 'SIGSEGV', oomKilled: false });
      });

      test('code has the environment of the spec and none of the server', async context => {
        const { real } = under.entries;
        if (real === undefined) return context.skip();
        const env = { ...under.spec().env, GREETING: 'grüße', EMPTY: '' };
        const { channel } = await startWith(real.environment, { env });
        expect(await call(channel, {})).toEqual(env);
      });

      test('the code runs in the working directory of the spec', async context => {
        const { real } = under.entries;
        if (real === undefined) return context.skip();
        const { channel } = await startWith(real.process, { workingDir: '/tmp' });
        expect(await call(channel, {})).toMatchObject({ directory: '/tmp' });
      });

      test('processes that the code leaves behind end with the sandbox', async context => {
        const { real } = under.entries;
        if (real === undefined) return context.skip();
        const { handle, channel } = await startWith(real.leaveChildren);
        await call(channel, {});
        await driver.stop(handle, 10_000);
        expect(await driver.inspect(handle)).toMatchObject({ state: 'exited' });
        await driver.remove(handle);
      });

      test('the code runs as the user of the spec', async context => {
        const { real } = under.entries;
        const { user } = under;
        if (real === undefined || user === null) return context.skip();
        const rootfs = { ...under.spec().rootfs, user: user.name };
        const { channel } = await startWith(real.process, { rootfs });
        expect(await call(channel, {})).toMatchObject({ uid: user.uid });
      });

      test('a user that does not exist fails the start with its name, and nothing is left', async context => {
        if (under.entries.real === undefined) return context.skip();
        const rootfs = { ...under.spec().rootfs, user: 'nobody-of-this-name' };
        const starting = start({ rootfs });
        await expect(starting).rejects.toSatisfy(
          isError('failed_precondition', /^user nobody-of-this-name does not exist in /),
        );
        expect(await driver.list()).toEqual([]);
      });

      test('a writable mount is the directory of the host', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.mounts) return context.skip();
        const source = directory();
        const mounts = [...under.spec().mounts, { source, target: '/data/in', readonly: false }];
        const { channel } = await startWith(real.write, { mounts });
        await call(channel, { path: '/data/in/file', text: 'from inside' });
        expect(readFileSync(join(source, 'file'), 'utf8')).toBe('from inside');
      });

      test('a read-only mount can be read and not written', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.mounts) return context.skip();
        const source = directory();
        writeFileSync(join(source, 'file'), 'from outside');
        const mounts = [...under.spec().mounts, { source, target: '/data', readonly: true }];
        const reader = await startWith(real.read, { mounts });
        expect(await call(reader.channel, { path: '/data/file' })).toBe('from outside');
        const writer = await startWith(real.write, { mounts });
        await expect(call(writer.channel, { path: '/data/file', text: 'x' })).rejects.toThrow(/Read-only file system/);
      });

      test('a file can be mounted, and a mount can lie below another', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.mounts) return context.skip();
        const outer = directory();
        const inner = directory();
        writeFileSync(join(inner, 'file'), 'inner');
        const mounts = [
          ...under.spec().mounts,
          { source: outer, target: '/data', readonly: false },
          { source: inner, target: '/data/deep/er', readonly: true },
          { source: join(inner, 'file'), target: '/data/one', readonly: true },
        ];
        const { channel } = await startWith(real.read, { mounts });
        expect(await call(channel, { path: '/data/deep/er/file' })).toBe('inner');
        expect(await call(channel, { path: '/data/one' })).toBe('inner');
      });

      test('a mount source that is missing fails the start with its path, and nothing is left', async context => {
        if (!capabilities.mounts) return context.skip();
        const mounts = [...under.spec().mounts, { source: '/no/such/source', target: '/data', readonly: false }];
        await expect(start({ mounts })).rejects.toSatisfy(
          isError('failed_precondition', /^mount source does not exist: \/no\/such\/source$/),
        );
        expect(await driver.list()).toEqual([]);
      });

      test.for(['/', '//', '/proc', '/proc/self', '/dev', '/dev/pts', '/data/../proc'])(
        'a mount at %s, which the sandbox itself needs, fails the start with a sentence',
        async (target, context) => {
          if (!capabilities.mounts) return context.skip();
          const mounts = [...under.spec().mounts, { source: directory(), target, readonly: true }];
          await expect(start({ mounts })).rejects.toSatisfy(isError('failed_precondition', /^mount target .*\//));
          expect(await driver.list()).toEqual([]);
        },
      );

      test('mounts may cover shared memory and most directories of an image or a host', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.mounts) return context.skip();
        const source = directory();
        writeFileSync(join(source, 'file'), 'mine');
        for (const target of ['/dev/shm', '/usr/share', '/tmp', '/etc/ssl']) {
          const mounts = [...under.spec().mounts, { source, target, readonly: false }];
          const { channel } = await startWith(real.read, { mounts });
          expect(await call(channel, { path: `${target}/file` })).toBe('mine');
        }
      });

      test.for(['/etc', '/etc/shadow', '/var/lib', '/dev/null', '/proc/self/root/etc'])(
        'a source that became unsafe after the check fails the start: now a link to %s',
        async (to, context) => {
          if (!capabilities.mounts) return context.skip();
          const link = join(directory(), 'link');
          symlinkSync(to, link);
          const mounts = [...under.spec().mounts, { source: link, target: '/data', readonly: false }];
          await expect(start({ mounts })).rejects.toSatisfy(isError('failed_precondition', /^unsafe mount source: /));
          expect(await driver.list()).toEqual([]);
        },
      );

      test.for(['/', '/etc', '..', 'directory', 'file'])(
        'a mount of the platform fails the start when a link to %s is in the path of its source',
        async (to, context) => {
          if (!capabilities.mounts) return context.skip();
          const around = directory();
          mkdirSync(join(around, 'directory'));
          writeFileSync(join(around, 'file'), 'content');
          mkdirSync(join(around, 'etc'));
          symlinkSync(to, join(around, 'link'));
          for (const source of [join(around, 'link'), join(around, 'link/etc'), `${join(around, 'link')}/.`]) {
            const platformMounts = [{ source, target: '/data', readonly: true }];
            await expect(start({ platformMounts })).rejects.toSatisfy(
              isError('failed_precondition', /^mount source (leads through a symbolic link|does not exist): /),
            );
          }
          expect(await driver.list()).toEqual([]);
        },
      );

      test('a link in one mount does not lead the target of another out of the sandbox', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.mounts) return context.skip();
        const workspace = directory();
        const outside = directory();
        const inner = directory();
        writeFileSync(join(inner, 'file'), 'inner');
        symlinkSync(outside, join(workspace, 'link'));
        const mounts = [
          ...under.spec().mounts,
          { source: workspace, target: '/data', readonly: false },
          { source: inner, target: '/data/link/target', readonly: true },
        ];
        const { channel } = await startWith(real.read, { mounts });
        expect(await call(channel, { path: `${outside}/target/file` })).toBe('inner');
        expect(() => statSync(join(outside, 'target'))).toThrow(/ENOENT/);
      });

      test('a handler that exceeds the memory ends only its own sandbox, which reports the reason', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.memoryLimit) return context.skip();
        const other = await startWith(under.entries.echo);
        const { handle, channel } = await startWith(real.eatMemory, { memoryMb: 64 });
        await expect(call(channel, {})).rejects.toThrow();
        expect(await driver.wait(handle)).toMatchObject({ signal: 'SIGKILL', oomKilled: true });
        expect(await call(other.channel, 1)).toBe(1);
      });

      test('a start with a memory limit above the memory of the machine succeeds', async context => {
        if (under.reservesMemory) return context.skip();
        const { channel } = await startWith(under.entries.echo, { memoryMb: 1_073_741_824 });
        expect(await call(channel, 1)).toBe(1);
      });

      test('a sandbox with the smallest cpu share starts and answers', async context => {
        if (!capabilities.cpuLimit) return context.skip();
        const { channel } = await startWith(under.entries.echo, { cpuMillis: 50 });
        expect(await call(channel, 1)).toBe(1);
      });

      test('a fork bomb is bounded, affects no other sandbox and ends with its own', async context => {
        const { real } = under.entries;
        if (real === undefined || !capabilities.pidsLimit) return context.skip();
        const other = await startWith(under.entries.echo);
        const { handle, channel } = await startWith(real.forkBomb, { maxProcesses: 64 });
        expect(await call(channel, {})).toBe('no more');
        expect((await driver.stats(handle)).processes).toBeLessThanOrEqual(65);
        expect(await call(other.channel, 1)).toBe(1);
        await driver.remove(handle);
        expect(await driver.inspect(handle)).toEqual({ state: 'gone' });
      });

      test('a start with requireIsolation succeeds when every layer works, and otherwise names the missing ones', async () => {
        const result = await start({ requireIsolation: true }).catch((error: unknown) => error);
        const probe = await driver.probe();
        const isWhole = probe.available && probe.degraded.length === 0;
        if (isWhole) expect(result).not.toBeInstanceOf(Error);
        else if (result instanceof Error) expect(result).toSatisfy(isError('failed_precondition'));
      });
    });
  });
}

function command(argv: readonly string[]): ExecRequest {
  return { argv, workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 1_000_000 };
}

async function logs(
  driver: SandboxDriver,
  handle: SandboxHandle,
  { tail = null, sinceMs = null, ...rest }: Partial<LogRequest> = {},
): Promise<string[]> {
  const chunks: Buffer[] = [];
  const whole = { tail, sinceMs, ...rest, follow: false };
  for await (const chunk of driver.logs(handle, whole, AbortSignal.timeout(WAIT_MS))) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  return text === '' ? [] : text.trimEnd().split('\n');
}

/** Returns the INIT of a spec, as the scheduler would send it. */
export function initOf(spec: SandboxSpec, codePath: string, handler: string) {
  return {
    codePath,
    handler,
    initializer: '',
    preStop: '',
    initTimeoutMs: WAIT_MS,
    concurrency: 1,
    maxResultBytes: 1_000_000,
    instanceId: spec.instanceId,
    tenant: spec.tenant,
    namespace: 'suite',
    name: 'sandbox',
    functionName: '',
    version: '',
    memoryMb: spec.memoryMb,
    cpuMillis: spec.cpuMillis,
  };
}

/** Calls the handler. Throws the text of a failure of the code. */
export async function call(channel: Channel, event: unknown): Promise<unknown> {
  const outcome = await channel.call({
    header: { traceId: 'suite', traceparent: '', requestId: randomUUID() },
    body: Buffer.from(JSON.stringify(event)),
    timeoutMs: WAIT_MS,
  });
  if (!outcome.ok) throw new Error(outcome.text);
  return JSON.parse(outcome.data.toString());
}

/** Returns a predicate for a `ServiceError` of this code and text. */
export function isError(code: ErrorCode, text = /./): (error: unknown) => boolean {
  return error => error instanceof ServiceError && error.code === code && text.test(error.message);
}

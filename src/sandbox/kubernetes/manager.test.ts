import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { getPriority } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { lives, type StartedManager, startManager } from '../../../test/parts/pod-manager.ts';
import { describeWith } from '../../../test/probe.ts';
import { messageOf } from '../../core/error.ts';
import { Channel } from '../../runtime/channel.ts';
import { openExec } from '../host/access-exec.ts';
import { openFile, writeFile } from '../host/access-files.ts';
import { PodManager } from './manager.ts';
import { packPlatformMounts, startWithMounts } from './mounts.ts';

const WAIT_MS = 30_000;
/** Maximum niceness: a process with this value cannot be slowed down further. */
const MAX_NICE = 19;
const signal = () => AbortSignal.timeout(WAIT_MS);
const started: StartedManager[] = [];

async function start(options: Parameters<typeof startManager>[0] = {}): Promise<StartedManager> {
  const one = await startManager(options);
  started.push(one);
  return one;
}

afterEach(async () => {
  for (const one of started.splice(0)) await one.dispose();
});

const HANDLER = `
import os
def handler(event, context):
    with open(os.path.join(os.environ['HOME'], 'left'), 'w') as out:
        out.write('behind')
    return {'event': event, 'pid': os.getpid(), 'env': sorted(os.environ)}
`;

function initOf(codePath: string) {
  return {
    codePath,
    handler: 'agent.handler',
    initializer: '',
    preStop: '',
    initTimeoutMs: 10_000,
    concurrency: 1,
    maxResultBytes: 1_000_000,
    instanceId: 'instance-1',
    tenant: 'tenant-1',
    namespace: 'space',
    name: 'agent-1',
    functionName: '0@shop@order',
    version: 'v1',
    memoryMb: 512,
    cpuMillis: 750,
  };
}

/** Runs one instance from the upload of its code to its exit. Returns the answer of its call. */
async function live(pod: StartedManager): Promise<{ event: unknown; pid: number; env: string[] }> {
  const source = join(pod.run, '..', 'source');
  mkdirSync(source, { recursive: true });
  writeFileSync(join(source, 'agent.py'), HANDLER);
  const target = join(pod.writable, 'code');
  const home = join(pod.writable, 'home');
  const order = pod.order({ env: { PATH: '/usr/bin:/bin', HOME: home } });
  await pod.manager.put(source, { target, readonly: true, user: '' }, signal());
  await pod.manager.start(order, signal());
  const ended = pod.manager.wait(signal());
  const init = initOf(target);
  const channel = await Channel.open(pod.manager.endpoint, order.secret, signal(), init);
  expect(await channel.initialize(init, signal())).toMatchObject({ ok: true });
  const outcome = await channel.call({
    header: { requestId: 'r', traceId: 't' } as never,
    body: Buffer.from('{"a":[1]}'),
    timeoutMs: WAIT_MS,
  });
  if (!outcome.ok) throw new Error(outcome.text);
  await channel.stop(5_000, signal()).catch(() => undefined);
  channel.close();
  expect(await ended).toMatchObject({ code: 0, signal: null });
  return JSON.parse(outcome.data.toString());
}

test('a pod runs one instance after another, and a reset removes everything of the previous one', async () => {
  const pod = await start();
  const first = await live(pod);
  expect(first).toMatchObject({
    event: { a: [1] },
    env: ['HOME', 'LC_CTYPE', 'PATH'].filter(name => first.env.includes(name)),
  });
  expect(existsSync(join(pod.writable, 'home/left'))).toBe(true);
  expect(await isRefused(pod.manager.start(pod.order(), signal()))).toBe('already_exists');
  await pod.manager.reset(signal());
  expect(readdirSync(pod.writable)).toEqual([]);
  expect(lives(first.pid)).toBe(false);
  expect(await isRefused(pod.manager.wait(signal()))).toBe('failed_precondition');
  const second = await live(pod);
  expect(second.pid).not.toBe(first.pid);
});

test('a stop ends an instance that ignores it, with all processes that it has started', async () => {
  const pod = await start();
  const argv = ['/bin/sh', '-c', 'trap "" TERM; sleep 1000 & echo $!; wait; wait'];
  await pod.manager.start(pod.order({ command: { kind: 'exec', argv } }), signal());
  await expect.poll(pod.log, { timeout: WAIT_MS }).toMatch(/\d/);
  const child = Number(pod.log());
  expect(lives(child)).toBe(true);
  expect(await pod.manager.stop(50)).toMatchObject({ code: null, signal: 'SIGKILL' });
  expect(lives(child)).toBe(false);
  expect(await pod.manager.stop(0)).toMatchObject({ signal: 'SIGKILL' });
});

test('a reset ends a running instance and notifies its waiters', async () => {
  const pod = await start();
  let ended: unknown;
  // The reset may arrive before the wait, which then finds no instance. The loop tries again.
  while (ended === undefined) {
    await pod.manager.start(pod.order(), signal());
    const waiting = pod.manager.wait(signal()).catch((error: unknown) => {
      if (messageOf(error) !== 'the pod has no instance') throw error;
    });
    await pod.manager.reset(signal());
    ended = await waiting;
  }
  expect(ended).toMatchObject({ signal: 'SIGKILL' });
  await live(pod);
});

test('the manager of a single-instance pod ends with the exit code of its instance', async () => {
  const pod = await start();
  const argv = ['/bin/sh', '-c', 'exit 3'];
  await pod.manager.start(pod.order({ command: { kind: 'exec', argv }, endsWithInstance: true }), signal());
  expect(await pod.exited).toBe(3);
});

test('an order that cannot be met fails with the reason, and the next order is accepted', async () => {
  const pod = await start();
  const python = pod.order({ command: { kind: 'python', version: '3.5' } });
  await expect(pod.manager.start(python, signal())).rejects.toMatchObject({
    code: 'failed_precondition',
    message: expect.stringMatching(/^invalid function: runtime python3.5 is not available: the pod has Python 3\.\d+$/),
  });
  const empty = pod.order({ command: { kind: 'exec', argv: ['/nowhere/main'], deployDir: '/nowhere' } });
  await expect(pod.manager.start(empty, signal())).rejects.toMatchObject({
    message: 'deploy dir is empty: /nowhere does not exist; mount the code with target /nowhere',
  });
  await live(pod);
});

test('the Python of an image is found by its version, and a missing one is reported', async () => {
  const pod = await start();
  const order = pod.order({ ofImage: true });
  await pod.manager.start(order, signal());
  const channel = await Channel.open(pod.manager.endpoint, order.secret, signal());
  channel.close();
  await pod.manager.reset(signal());
  const other = pod.order({ ofImage: true, command: { kind: 'python', version: '3.5' } });
  await expect(pod.manager.start(other, signal())).rejects.toMatchObject({
    message: expect.stringMatching(
      /^invalid function: runtime python3.5 is not available: image image-1 has no Python 3.5 \(/,
    ),
  });
});

test('variables of the order override those of the image, and variables of the cluster are absent', async () => {
  const pod = await start();
  const order = pod.order({ ofImage: true, command: { kind: 'exec', argv: ['/usr/bin/env'] } });
  await pod.manager.start({ ...order, env: { GIVEN: 'yes' } }, signal());
  expect(await pod.manager.wait(signal())).toMatchObject({ code: 0 });
  await expect.poll(pod.log, { timeout: WAIT_MS }).toContain('GIVEN=yes');
  expect(pod.log()).toContain('PATH=');
  expect(pod.log()).not.toMatch(/KUBERNETES|HOSTNAME/);
});

test('a caller without the key is refused without information', async () => {
  const pod = await start();
  const stranger = new PodManager({ ...pod.manager.address, key: randomBytes(32).toString('hex') });
  await expect(stranger.stats()).rejects.toMatchObject({
    code: 'unavailable',
    message: expect.stringContaining('does not know the key of the pod'),
  });
  expect(await isRefused(pod.manager.stats())).toBe('failed_precondition');
});

test('unproven connections are closed, and do not keep a proven one from being served', async () => {
  const pod = await start({ proofSeconds: 0.2 });
  const { host, port } = pod.manager.address;
  const silent = Array.from({ length: 100 }, () => net.connect({ host, port }));
  const ends = silent.map(socket =>
    once(
      socket.on('error', () => undefined),
      'close',
    ),
  );
  await Promise.all(silent.map(socket => once(socket, 'connect')));
  expect(await isRefused(pod.manager.stats())).toBe('failed_precondition');
  for (const socket of silent) socket.resume();
  await Promise.all(ends);
});

test('commands and files of an instance work inside the pod, with open streams', async () => {
  const pod = await start();
  await pod.manager.start(pod.order({ env: { PATH: '/usr/bin:/bin', MINE: '1' } }), signal());
  const request = {
    argv: ['sh', '-c', 'echo $MINE; cat'],
    workingDir: '',
    env: {},
    stdin: 'in',
    timeoutMs: WAIT_MS,
    maxOutputBytes: 100,
  };
  expect(await pod.manager.exec(request, signal())).toEqual({
    returncode: 0,
    stdout: '1\nin',
    stderr: '',
    truncated: false,
  });
  const open = await openExec(
    pod.manager.openAccess,
    { argv: ['cat'], workingDir: '', env: {}, terminal: null },
    signal(),
  );
  // The size exceeds every buffer on the path.
  const sent = 'x'.repeat(5_000_000);
  open.stdin.end(sent);
  expect(await text(open.stdout)).toHaveLength(sent.length);
  expect(await open.ended).toBe(0);
  const path = join(pod.writable, 'file');
  await writeFile(pod.manager.openAccess, path, { mode: null }, Readable.from([sent]), signal());
  const file = await openFile(pod.manager.openAccess, path, signal());
  expect(await text(file.read(0, file.sizeBytes))).toBe(sent);
  expect(await pod.manager.stats()).toMatchObject({ processes: expect.any(Number) });
});

test('code arrives with its links and modes, and replaces the previous content', async () => {
  const pod = await start();
  const source = join(pod.run, '..', 'tree');
  mkdirSync(join(source, 'deep/er'), { recursive: true });
  writeFileSync(join(source, 'deep/er/run'), '#!/bin/sh\n', { mode: 0o755 });
  writeFileSync(join(source, 'large'), randomBytes(3_000_000));
  writeFileSync(join(source, 'empty'), '');
  symlinkSync('/etc/passwd', join(source, 'link'));
  const target = join(pod.writable, 'code');
  mkdirSync(join(target, 'old'), { recursive: true });
  await pod.manager.put(source, { target, readonly: true, user: '' }, signal());
  expect(readdirSync(target).sort()).toEqual(['deep', 'empty', 'large', 'link']);
  expect(readFileSync(join(target, 'large')).equals(readFileSync(join(source, 'large')))).toBe(true);
  expect(statSync(join(target, 'deep/er/run')).mode & 0o777).toBe(0o555);
  await pod.manager.start(pod.order(), signal());
  expect(await isRefused(pod.manager.put(source, { target, readonly: true, user: '' }, signal()))).toBe(
    'failed_precondition',
  );
});

test('a small code package is sent with the order, and a too large one is refused before the order', async () => {
  const pod = await start();
  const source = join(pod.run, '..', 'small');
  mkdirSync(join(source, 'deep'), { recursive: true });
  writeFileSync(join(source, 'agent.py'), 'def handler(event, context):\n    return event\n');
  writeFileSync(join(source, 'deep/run'), '#!/bin/sh\n', { mode: 0o755 });
  symlinkSync('/etc/passwd', join(source, 'link'));
  const target = join(pod.writable, 'code');
  mkdirSync(join(target, 'old'), { recursive: true });
  const code = await packPlatformMounts([{ source, target, readonly: true }]);
  if (code === null) throw new Error('it was taken for large');
  const order = pod.order({ code });
  await pod.manager.start(order, signal());
  expect(readdirSync(target).sort()).toEqual(['agent.py', 'deep', 'link']);
  expect(statSync(join(target, 'deep/run')).mode & 0o777).toBe(0o555);
  expect(statSync(join(target, 'agent.py')).mode & 0o777).toBe(0o444);
  const channel = await Channel.open(pod.manager.endpoint, order.secret, signal(), initOf(target));
  expect(await channel.initialize(initOf(target), signal())).toMatchObject({ ok: true });
  channel.close();
  writeFileSync(join(source, 'large'), randomBytes(300_000));
  expect(await packPlatformMounts([{ source, target, readonly: true }])).toBe(null);
});

test('a manager of an older version gets the code in a separate step before the order', async () => {
  const pod = await start({ isOld: true });
  const source = join(pod.run, '..', 'source');
  const target = join(pod.writable, 'code');
  mkdirSync(source);
  writeFileSync(join(source, 'agent.py'), HANDLER);
  const mounts = [{ source, target, readonly: true }];
  const code = await packPlatformMounts(mounts);
  if (code === null) throw new Error('it was taken for large');
  await expect(pod.manager.start(pod.order({ code }), signal())).rejects.toThrow(
    'the manager of the pod is older than this server: it takes no code with an order',
  );
  const order = pod.order({ env: { HOME: pod.writable, PATH: '/usr/bin:/bin' } });
  await startWithMounts(pod.manager, order, mounts, code, signal());
  const channel = await Channel.open(pod.manager.endpoint, order.secret, signal(), initOf(target));
  expect(await channel.initialize(initOf(target), signal())).toMatchObject({ ok: true });
  channel.close();
});

test('a code path that is a file or is missing is refused with the reason', async () => {
  const pod = await start();
  const source = join(pod.run, '..', 'file');
  writeFileSync(source, '');
  expect(await packPlatformMounts([{ source, target: '/opt/function/a', readonly: true }])).toBe(null);
  const gone = { source: `${source}-gone`, target: '/opt/function/a', readonly: true };
  await expect(packPlatformMounts([gone])).rejects.toThrow(`mount source does not exist: ${source}-gone`);
});

test('an order whose code cannot be unpacked starts nothing, and the next order is accepted', async () => {
  const pod = await start();
  const archive = Buffer.from('no archive').toString('base64');
  const code = [{ target: join(pod.writable, 'code'), readonly: true, archive }];
  await expect(pod.manager.start(pod.order({ code }), signal())).rejects.toMatchObject({ code: 'invalid_request' });
  const nowhere = [{ target: '/proc/code', readonly: true, archive }];
  await expect(pod.manager.start(pod.order({ code: nowhere }), signal())).rejects.toThrow(
    /^mount target \/proc\/code cannot be written to in this pod/,
  );
  await live(pod);
});

describeWith(['root'], 'code of the manager’s own user', () => {
  const CODE = `
import os, sys
manager = os.getppid()
def tried(path):
    try:
        with open(path, 'rb') as source:
            source.read(1)
        return 'read'
    except OSError as error:
        return type(error).__name__
places = ['/proc/%d/%s' % (manager, name) for name in ('mem', 'environ', 'maps', 'fd/5', 'stack', 'cwd/x')]
print('seen:', sorted(set(tried(place) for place in places)), os.listdir(sys.argv[1]), os.geteuid(), flush=True)
`;

  test('code of the manager’s own user finds no key and cannot inspect the manager', async () => {
    const pod = await start({ uid: 65_534 });
    const argv = [pod.python, '-c', CODE, pod.run];
    await pod.manager.start(pod.order({ command: { kind: 'exec', argv } }), signal());
    expect(await pod.manager.wait(signal())).toMatchObject({ code: 0 });
    await expect.poll(pod.log, { timeout: WAIT_MS }).toContain("seen: ['PermissionError'] ['sockets'] 65534");
  });

  test('code of the manager’s own user cannot read the processes that serve its files and commands', async () => {
    const pod = await start({ uid: 65_534 });
    await pod.manager.start(pod.order(), signal());
    const held = await openExec(
      pod.manager.openAccess,
      { argv: ['cat'], workingDir: '', env: {}, terminal: null },
      signal(),
    );
    const look =
      'for p in /proc/[0-9]*; do grep -q "^PPid:.$1$" $p/status 2>/dev/null && { cat $p/environ >/dev/null 2>&1 && echo read || echo closed; }; done; true';
    const request = {
      argv: ['sh', '-c', look, 'sh', `${pod.pid}`],
      workingDir: '',
      env: {},
      stdin: '',
      timeoutMs: WAIT_MS,
      maxOutputBytes: 1_000,
    };
    const { stdout } = await pod.manager.exec(request, signal());
    // The worker is a separate program of the code user. The other two processes are forks of the manager.
    expect(stdout.trim().split('\n').sort()).toEqual(['closed', 'closed', 'read']);
    held.kill();
  });

  test.skipIf(getPriority() === MAX_NICE)(
    'a manager whose priority the code has lowered ends instead of resetting',
    async () => {
      const pod = await start({ uid: 65_534 });
      const change =
        'import os; p = os.getppid(); os.setpriority(os.PRIO_PROCESS, p, os.getpriority(os.PRIO_PROCESS, p) + 1)';
      await pod.manager.start(pod.order({ command: { kind: 'exec', argv: [pod.python, '-c', change] } }), signal());
      expect(await pod.manager.wait(signal())).toMatchObject({ code: 0 });
      expect(await isRefused(pod.manager.reset(signal()))).toBe('failed_precondition');
      expect(await pod.exited).toBe(70);
    },
  );
});

async function isRefused(promise: Promise<unknown>): Promise<string> {
  return await promise.then(
    () => 'done',
    error => (error as { code: string }).code,
  );
}

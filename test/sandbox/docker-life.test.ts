import { mkdirSync, mkdtempSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import type { ExecRequest, SandboxSpec } from '../../src/sandbox/driver.ts';
import { withDaemonsLeftAlone } from '../parts/docker.ts';
import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { DOCKER_START_MS, sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { call, initOf, isError } from '../suites/sandbox-driver.ts';
import { buildImage, type DockerClient, dockerClient } from './docker-client.ts';
import { DockerFixture } from './docker-fixture.ts';

const WAIT_MS = 30_000;
const RUNTIME = join(import.meta.dirname, '../../runtimes/python');

/**
 * Script that prints the MiB of `/dev/shm` and fills as many as its input says. The test uses 96, more than
 * Docker's default of 64.
 */
const SHARED_MEMORY = `
import os, sys
with open('/dev/shm/filled', 'wb') as file:
    for _ in range(int(float(sys.stdin.read()))):
        file.write(b'x' * (1 << 20))
facts = os.statvfs('/dev/shm')
print(facts.f_blocks * facts.f_frsize >> 20)
`;

describeWith(['docker'], 'containers', () => {
  let client: DockerClient;
  let fixture: DockerFixture;
  let driver: DockerDriver;
  const channels: Channel[] = [];
  const directories: string[] = [];

  beforeAll(async () => {
    const { host } = await sharedDocker();
    client = dockerClient(host);
    fixture = new DockerFixture(host, IMAGES.python);
    driver = fixture.driver();
  }, DOCKER_START_MS);

  afterEach(async () => {
    for (const channel of channels.splice(0)) channel.close();
    for (const { handle } of await driver.list()) await driver.remove(handle);
    for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
  });

  afterAll(async () => {
    await fixture.dispose();
  });

  const signal = () => AbortSignal.timeout(WAIT_MS);

  const start = async (changes: Partial<SandboxSpec> = {}) => {
    const spec = fixture.spec(changes);
    return { spec, ...(await driver.start(spec, signal())) };
  };

  const open = async ({ spec, endpoint }: Awaited<ReturnType<typeof start>>, entry: string) => {
    const channel = await Channel.open(endpoint, spec.secret, signal());
    channels.push(channel);
    const outcome = await channel.initialize(initOf(spec, '/code', entry), signal());
    if (!outcome.ok) throw new Error(outcome.error.message);
    return channel;
  };

  const startWith = async (entry: string, changes: Partial<SandboxSpec> = {}) => {
    const started = await start(changes);
    return { ...started, channel: await open(started, entry) };
  };

  const directory = (files: Readonly<Record<string, string>> = {}, mode = 0o755) => {
    const path = mkdtempSync(join(tmpdir(), 'rookery-docker-'));
    directories.push(path);
    for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text, { mode });
    return path;
  };

  const image = (imageUrl: string, user = '') => ({ type: 'image' as const, imageUrl, user });

  /** Evaluates an expression of Python inside and returns its text. */
  const evaluate = (channel: Channel, code: string) => call(channel, { code });

  test('a failed start leaves no container and no record', async () => {
    await expect(start({ rootfs: image('no-such-registry.invalid/image:1') })).rejects.toThrow();
    await expect(start({ rootfs: image(IMAGES.plain) })).rejects.toThrow();
    expect(await driver.list()).toEqual([]);
    expect(await client.listContainers(fixture.installation)).toEqual([]);
  });

  describe('the image of a container', () => {
    test('a start without an image fails with the sentence of the specification and the field that names one', async () => {
      await expect(start({ rootfs: image('') })).rejects.toMatchObject({
        code: 'failed_precondition',
        message: 'no Docker image specified',
        advice: expect.stringContaining('rootfs.imageurl'),
      });
    });

    test('a start fails with the name of an image that cannot be pulled, and the reason', async () => {
      await expect(start({ rootfs: image('127.0.0.1:1/nobody/nothing:9') })).rejects.toSatisfy(
        isError(
          'failed_precondition',
          /^image 127\.0\.0\.1:1\/nobody\/nothing:9 is not here and cannot be pulled: [^(]/,
        ),
      );
    });

    test('a start fails when the image is not a valid reference', async () => {
      await expect(start({ rootfs: image('Not An Image') })).rejects.toSatisfy(
        isError('failed_precondition', /invalid reference format/),
      );
    });

    test('an image without Python fails as an invalid function that names the image', async () => {
      await expect(start({ rootfs: image(IMAGES.plain) })).rejects.toSatisfy(
        isError(
          'failed_precondition',
          /^invalid function: runtime python3\.11 is not available: image rookery-test\/plain:1 has no Python 3\.11 \(/,
        ),
      );
    });

    test('an image with another Python fails as an invalid function', async () => {
      await expect(start({ command: { kind: 'python', version: '3.9' } })).rejects.toSatisfy(
        isError(
          'failed_precondition',
          /image rookery-test\/python:1 has no Python 3\.9 \(.*python3: it is of another version/,
        ),
      );
    });

    test('an image’s own runtime is used if the image has one', async () => {
      const file = '/usr/lib/python3/dist-packages/rookery_runtime';
      await client.docker(
        'run',
        '--name',
        'own-runtime',
        '-v',
        `${RUNTIME}:/rt:ro`,
        IMAGES.python,
        'cp',
        '-r',
        '/rt/rookery_runtime',
        file,
      );
      await client.docker('commit', 'own-runtime', 'rookery-test/own:1');
      await client.docker('rm', 'own-runtime');
      const { channel } = await startWith('behaviours.attempt', { rootfs: image('rookery-test/own:1') });
      expect(await evaluate(channel, "sys.modules['rookery_runtime'].__file__")).toBe(`${file}/__init__.py`);
    });

    test('a runtime in the image with another version of the protocol is not used', async () => {
      const file = '/usr/lib/python3/dist-packages/rookery_runtime';
      const tag = await buildImage(client, 'rookery-test/old:1', {
        [`${file}/__init__.py`]: '',
        [`${file}/protocol.py`]: 'VERSION = 0\n',
      });
      const { channel } = await startWith('behaviours.attempt', { rootfs: image(tag) });
      expect(await evaluate(channel, "sys.modules['rookery_runtime'].__file__")).toMatch(/^\/opt\/rookery\//);
    });

    test('the directory of the mounted runtime is neither in the path nor in the environment of the code', async () => {
      const { channel } = await startWith('behaviours.attempt');
      expect(await evaluate(channel, "[p for p in sys.path if 'rookery' in p]")).toBe('[]');
      expect(await evaluate(channel, "[v for v in os.environ.values() if '/opt/rookery' in v]")).toBe('[]');
      expect(await evaluate(channel, "os.listdir('/run/rookery')")).toBe("['runtime.sock']");
    });

    test('an image’s own variables are set, and the spec overrides them', async () => {
      const base = ['run', '-d', '--name', 'with-env', IMAGES.python, 'true'];
      await client.docker(...base);
      await client.docker('commit', '--change', 'ENV FROM_IMAGE=yes LANG=xx', 'with-env', 'rookery-test/env:1');
      await client.docker('rm', '-f', 'with-env');
      const { channel } = await startWith('behaviours.environment', { rootfs: image('rookery-test/env:1') });
      expect(await call(channel, {})).toMatchObject({ FROM_IMAGE: 'yes', LANG: 'C.UTF-8' });
    });

    test('an image with another Java version, or without Java, fails as an invalid function', async () => {
      const argv = ['java', '-jar', '/x.jar'];
      const imageProgram = { name: 'java' as const, version: '17' };
      const command = { kind: 'exec' as const, argv, makesSocket: true, imageProgram };
      await expect(start({ command })).rejects.toSatisfy(
        isError('failed_precondition', /^invalid function: runtime java17 is not available: image \S+ has no Java,/),
      );
      const tag = await buildImage(client, 'rookery-test/java:1', {
        '/usr/bin/java': '#!/bin/sh\necho \'openjdk version "11.0.2" 2019\' >&2\n',
      });
      await expect(start({ command, rootfs: image(tag) })).rejects.toSatisfy(
        isError('failed_precondition', /^invalid function: .*java17.* has Java 11, and Java 17 is needed$/),
      );
    });
  });

  test.each([64, 256])('/dev/shm is as large as the memory of %d MiB', async memoryMb => {
    const { handle } = await start({ memoryMb });
    const request: ExecRequest = {
      ...{ argv: ['python3', '-c', SHARED_MEMORY], workingDir: '', env: {}, stdin: `${(memoryMb * 3) / 8}` },
      ...{ timeoutMs: WAIT_MS, maxOutputBytes: 1000 },
    };
    const { stdout, stderr } = await driver.exec(handle, request, signal());
    expect([stdout, stderr]).toEqual([`${memoryMb}\n`, '']);
  });

  describe('the user of a container', () => {
    test.each(['nobody', '1000'])(
      'the user %s has /tmp as HOME when the image has no home directory for this user',
      async user => {
        const { channel } = await startWith('behaviours.environment', {
          rootfs: { ...image(IMAGES.python), user },
          env: { HOME: `/home/${user}` },
        });
        expect(await call(channel, {})).toMatchObject({ HOME: '/tmp' });
      },
    );

    test('code in a container has no capabilities, no_new_privs and filtered system calls', async () => {
      const { channel, facts } = await startWith('behaviours.process');
      const none = '0000000000000000';
      expect(await call(channel, {})).toMatchObject({
        uid: 0,
        capabilities: [none, none, none, none],
        noNewPrivs: '1',
        seccomp: '2',
      });
      expect(facts.isolation).toEqual(expect.arrayContaining(['mount', 'pid', 'ipc', 'uts', 'net', 'seccomp']));
    });

    test('the user of a container can be a number, and may have a group', async () => {
      const { channel } = await startWith('behaviours.process', { rootfs: image(IMAGES.python, '1234:5678') });
      expect(await call(channel, {})).toMatchObject({ uid: 1234, gid: 5678 });
    });

    test('a start fails with the name of a group that does not exist', async () => {
      await expect(start({ rootfs: image(IMAGES.python, 'root:nothing') })).rejects.toSatisfy(
        isError('failed_precondition', /^group nothing does not exist in rookery-test\/python:1$/),
      );
    });

    test('a workspace that the user cannot write to fails the create with both uids', async () => {
      const source = directory();
      const mounts = [...fixture.spec().mounts, { source, target: '/home/worker', readonly: false }];
      const rootfs = image(IMAGES.python, IMAGE_USER.name);
      const { facts } = await start({ mounts, rootfs });
      expect(facts.warnings).toEqual([
        `${source} belongs to uid ${process.getuid?.()} and ${IMAGE_USER.name} has uid ${IMAGE_USER.uid} in ${IMAGES.python}: writing to it may be denied`,
      ]);
    });
  });

  describe('the limits of a container', () => {
    test('a container has the open files, processes, memory and cpu shares of its spec', async () => {
      const changes = { maxOpenFiles: 512, maxProcesses: 40, memoryMb: 128, cpuMillis: 500 };
      const { channel, handle } = await startWith('behaviours.attempt', changes);
      const limit = '__import__("resource").getrlimit(__import__("resource").RLIMIT_NOFILE)';
      expect(await evaluate(channel, limit)).toBe('(512, 512)');
      expect(await client.inspect(String(handle.data.container))).toMatchObject({
        HostConfig: {
          CpuShares: 512,
          Memory: 128 * 1024 * 1024,
          MemorySwap: 128 * 1024 * 1024,
          PidsLimit: 41,
          LogConfig: { Type: 'json-file', Config: { 'max-size': '10485760', 'max-file': '3' } },
        },
      });
    });

    test('a start with more processors than the kernel can count succeeds', async () => {
      const { channel } = await startWith('behaviours.echo', { cpuMillis: 1_000_000 });
      expect(await call(channel, 1)).toBe(1);
    });
  });

  describe('the network of a container', () => {
    const connectTo = (host: string, port: number) =>
      `socket.create_connection(('${host}', ${port}), timeout=2) and 'connected'`;
    /** Listens on every address in a thread, while the call returns. */
    const listen = (port: number) =>
      [
        'import threading',
        "server = socket.create_server(('0.0.0.0', %d))".replace('%d', String(port)),
        'sys.modules["kept"] = server',
        "threading.Thread(target=lambda: [server.accept()[0].sendall(b'hello') for _ in range(3)], daemon=True).start()",
        "'listening'",
      ].join('\n');

    test('containers reach neither each other, of one tenant or of two, nor the loopback of the host', async () => {
      const onHost = createServer(socket => socket.on('error', () => socket.destroy()).end('host'));
      await new Promise<void>(resolve => onHost.listen(0, '127.0.0.1', resolve));
      try {
        // The test creates networks, and no other daemon of this machine may start meanwhile.
        await withDaemonsLeftAlone(async () => {
          const target = await startWith('behaviours.attempt', { tenant: 'one' });
          expect(await evaluate(target.channel, listen(7000))).toBe('listening');
          expect(await evaluate(target.channel, connectTo('127.0.0.1', 7000))).toBe('connected');
          const same = await startWith('behaviours.attempt', { tenant: 'one' });
          const other = await startWith('behaviours.attempt', { tenant: 'another' });
          const { port } = onHost.address() as { port: number };
          for (const { channel, facts } of [same, other]) {
            expect(facts.sandboxIp).toMatch(/^\d+\.\d+\.\d+\.\d+$/);
            expect(await evaluate(channel, connectTo(target.facts.sandboxIp, 7000))).toMatch(/Error|timed out/);
            expect(await evaluate(channel, connectTo('127.0.0.1', port))).toMatch(/ConnectionRefused/);
          }
        });
      } finally {
        onHost.close();
      }
    });

    test('a container without a network has loopback only', async () => {
      const { channel, facts } = await startWith('behaviours.attempt', {
        network: 'none',
        ports: [{ protocol: 'tcp', port: 80 }],
      });
      expect(await evaluate(channel, "os.listdir('/sys/class/net')")).toBe("['lo']");
      expect(facts.sandboxIp).toBe('');
      expect(facts.portMappings).toEqual([]);
      expect(facts.warnings).toContain('ports are not published: the sandbox has no network');
    });

    test('published ports are on 127.0.0.1 under ports of the system, and no others exist', async () => {
      const ports = [
        { protocol: 'tcp' as const, port: 7000 },
        { protocol: 'udp' as const, port: 53 },
      ];
      const { channel, facts } = await startWith('behaviours.attempt', { ports });
      // The order is that of the request, which differs from the daemon's.
      expect(facts.portMappings).toEqual([
        { protocol: 'tcp', containerPort: 7000, hostIp: '127.0.0.1', hostPort: expect.any(Number) },
        { protocol: 'udp', containerPort: 53, hostIp: '127.0.0.1', hostPort: expect.any(Number) },
      ]);
      await evaluate(channel, listen(7000));
      const { hostPort } = facts.portMappings[0] ?? { hostPort: 0 };
      expect(await client.read(hostPort)).toBe('hello');
    });

    test('a removed network is created again', async () => {
      const first = await start({ tenant: 'pruned' });
      await driver.remove(first.handle);
      await client.docker('network', 'prune', '--force');
      const { channel } = await startWith('behaviours.echo', { tenant: 'pruned' });
      expect(await call(channel, 1)).toBe(1);
    });

    test('the driver removes its networks without containers at its end, and networks of others stay', async () => {
      const other = fixture.driver();
      const started = await other.start(fixture.spec({ tenant: 'leaving' }), signal());
      await other.remove(started.handle);
      await client.docker('network', 'create', 'somebody-elses');
      await other.close();
      const names = await client.docker('network', 'ls', '--format', '{{.Name}}');
      expect(names.split('\n')).toContain('somebody-elses');
      expect(names.split('\n').filter(name => name.startsWith(`rookery-${fixture.installation.slice(0, 8)}-`))).toEqual(
        [],
      );
      await client.docker('network', 'rm', 'somebody-elses');
    });
  });

  describe('the end of a container', () => {
    test('a container that another program kills or removes is noticed', async () => {
      const killed = await start();
      const removed = await start();
      const waits = [driver.wait(killed.handle), driver.wait(removed.handle)];
      await client.docker('kill', String(killed.handle.data.container));
      await client.docker('rm', '-f', String(removed.handle.data.container));
      const stopped = { code: null, signal: 'SIGKILL', oomKilled: false, cause: 'stopped through docker' };
      expect(await waits[0]).toMatchObject(stopped);
      expect(await waits[1]).toMatchObject({
        code: null,
        cause: expect.stringMatching(/^(stopped|removed) through docker$/),
      });
      expect(await driver.inspect(removed.handle)).toEqual({ state: 'gone' });
    });

    test('two installations on one daemon do not see each other', async () => {
      const { handle } = await start();
      const { host } = await sharedDocker();
      const stranger = new DockerFixture(host, IMAGES.python);
      try {
        expect(await stranger.driver().list()).toEqual([]);
      } finally {
        await stranger.dispose();
      }
      expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    });

    test('the driver lists a sandbox directory without a container, so that it can be removed', async () => {
      const { handle } = await start();
      await client.docker('rm', '-f', String(handle.data.container));
      const [left] = await driver.list();
      expect(left).toMatchObject({ instanceId: handle.instanceId, running: false });
      if (left) await driver.remove(left.handle);
      expect(await driver.list()).toEqual([]);
    });

    test('residue of an earlier start of the same instance does not prevent the next start', async () => {
      const first = await start();
      const second = await driver.start({ ...fixture.spec(), instanceId: first.spec.instanceId }, signal());
      expect(await driver.inspect(first.handle)).toEqual({ state: 'gone' });
      expect((await driver.list()).map(({ handle }) => handle)).toEqual([second.handle]);
    });

    test.each(['', IMAGE_USER.name])(
      'the code of user "%s" cannot change the directory that it shares with the server',
      async user => {
        const { channel } = await startWith('behaviours.attempt', { rootfs: image(IMAGES.python, user) });
        const tries = [
          "os.unlink('/run/rookery/runtime.sock')",
          "open('/run/rookery/file', 'w')",
          "os.chmod('/run/rookery', 0o777)",
          "os.rename('/run/rookery', '/run/other')",
        ];
        for (const each of tries)
          expect(await evaluate(channel, each)).toMatch(/^(PermissionError|OSError: \[Errno 16\])/);
      },
    );

    test('a program that places another file at the path of the socket is refused', async () => {
      const source = directory({ app: '#!/bin/sh\nln -s /run/rookery /run/rookery/runtime.sock\nexec sleep 600\n' });
      const command = { kind: 'exec' as const, argv: ['/app/app'], deployDir: '/app', makesSocket: true };
      const mounts = [{ source, target: '/app', readonly: true }];
      await expect(start({ command, mounts })).rejects.toSatisfy(
        isError('failed_precondition', /^\/run\/rookery\/runtime\.sock is not a socket/),
      );
      expect(await driver.list()).toEqual([]);
    });
  });

  test('lines that the daemon keeps in pieces are joined, also at the end of the log', async () => {
    const { channel, handle } = await startWith('behaviours.attempt');
    const long = 'x'.repeat(40_000);
    await evaluate(channel, `print('a')\nprint('x' * 40000)\nprint('b', flush=True)`);
    const lines = async (tail: number | null) => {
      const chunks: Buffer[] = [];
      for await (const chunk of driver.logs(handle, { tail, sinceMs: null, follow: false }, signal()))
        chunks.push(chunk);
      return Buffer.concat(chunks).toString().split('\n').slice(0, -1);
    };
    await expect.poll(() => lines(null), { timeout: WAIT_MS }).toEqual(['a', long, 'b']);
    expect(await lines(2)).toEqual([long, 'b']);
    expect(await lines(1)).toEqual(['b']);
  });

  test('a command does not see the secret that opens the runtime', async () => {
    const code = directory({ app: program('socket') });
    const mounts = [{ source: code, target: '/app', readonly: true }, runtimeMount];
    const command = { kind: 'exec' as const, argv: ['/app/app'], deployDir: '/app', makesSocket: true };
    const { handle, spec } = await start({ command, mounts });
    const request: ExecRequest = {
      argv: ['env'],
      workingDir: '',
      env: {},
      stdin: '',
      timeoutMs: WAIT_MS,
      maxOutputBytes: 100_000,
    };
    const { stdout } = await driver.exec(handle, request, signal());
    expect(stdout).not.toContain(spec.secret);
  });

  describe('programs in a container', () => {
    const deployDir = '/app';
    const exec = (name = 'app') => ({
      kind: 'exec' as const,
      argv: [`${deployDir}/${name}`],
      deployDir,
      makesSocket: true,
    });
    const startProgram = (command: SandboxSpec['command'], source: string | null, imageUrl: string = IMAGES.python) => {
      const mounts = source === null ? [] : [{ source, target: deployDir, readonly: true }, runtimeMount];
      return start({ command, mounts, rootfs: image(imageUrl) });
    };

    test('a program that speaks the protocol serves', async () => {
      const started = await startProgram(
        exec(),
        directory({ app: program('socket'), 'behaviours.py': 'def f(e, c): return e\n' }),
      );
      const channel = await Channel.open(started.endpoint, started.spec.secret, signal());
      channels.push(channel);
      const outcome = await channel.initialize(initOf(started.spec, deployDir, 'behaviours.f'), signal());
      expect(outcome.ok).toBe(true);
      expect(await call(channel, 'x')).toBe('x');
    });

    test.each([
      ['the directory is missing', exec(), null, /^deploy dir is empty: \/app does not exist/],
      ['the directory is empty', exec(), {}, /^deploy dir is empty: there is nothing in \/app$/],
      ['the program is missing', exec('missing'), { app: 'x' }, /^there is no program \/app\/missing$/],
      [
        'the code path is not absolute',
        { ...exec(), deployDir: 'app' },
        null,
        /^deploy dir is empty: codePath must be an absolute path/,
      ],
    ] as const)('a start fails with the reason when %s', async (_title, command, files, text) => {
      const source = files === null ? null : directory(files);
      for (const each of [command, { ...command, orServesHttp: true }]) {
        await expect(startProgram(each, source)).rejects.toSatisfy(isError('failed_precondition', text));
      }
      expect(await driver.list()).toEqual([]);
    });

    test('a start fails with the reason when the program is not executable', async () => {
      const source = directory({ app: '#!/bin/sh\n' }, 0o644);
      await expect(startProgram(exec(), source)).rejects.toSatisfy(
        isError('failed_precondition', /^\/app\/app is not an executable file$/),
      );
    });

    test('a start fails with the exit code and the last output when the program ends before it listens', async () => {
      const source = directory({ app: '#!/bin/sh\necho no luck >&2\nexit 7\n' });
      await expect(startProgram(exec(), source)).rejects.toSatisfy(
        isError('failed_precondition', /^instance exited: exit code 7: no luck$/),
      );
    });

    test('a program that may serve HTTP runs over the protocol in an image without Python', async () => {
      const source = directory({ app: '#!/bin/sh\nexit 9\n' });
      await expect(startProgram({ ...exec(), orServesHttp: true }, source, IMAGES.plain)).rejects.toSatisfy(
        isError('failed_precondition', /^instance exited: exit code 9/),
      );
    });

    test('a program without the protocol and a bootstrap both serve over HTTP', async () => {
      const source = directory({ app: program('http'), bootstrap: program('http') });
      const commands = [
        { ...exec(), orServesHttp: true },
        { kind: 'http' as const, argv: [`${deployDir}/bootstrap`], deployDir },
      ];
      for (const command of commands) {
        const started = await startProgram(command, source);
        const channel = await Channel.open(started.endpoint, started.spec.secret, signal());
        channels.push(channel);
        await channel.initialize(initOf(started.spec, deployDir, ''), signal());
        expect(await call(channel, { a: 1 })).toEqual({ posted: { a: 1 } });
      }
    });

    test('each call fails with the missing program when the command is empty', async () => {
      const started = await start({ command: { kind: 'exec', argv: [] } });
      const channel = await Channel.open(started.endpoint, started.spec.secret, signal());
      channels.push(channel);
      await channel.initialize(initOf(started.spec, '', ''), signal());
      await expect(call(channel, {})).rejects.toThrow(/empty user call code/);
    });
  });

  const runtimeMount = { source: RUNTIME, target: '/rt', readonly: true };

  /** Returns a program whose language does not matter to the driver; here it is Python. */
  function program(speaks: 'socket' | 'http'): string {
    if (speaks === 'socket') return '#!/bin/sh\nPYTHONPATH=/rt exec python3 -m rookery_runtime\n';
    return [
      '#!/usr/bin/python3',
      'import http.server, json',
      'class Server(http.server.BaseHTTPRequestHandler):',
      '    def do_GET(self):',
      '        self.answer(b"")',
      '    def do_POST(self):',
      '        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))',
      '        self.answer(json.dumps({"posted": event}).encode())',
      '    def answer(self, body):',
      '        self.send_response(200)',
      '        self.send_header("Content-Length", str(len(body)))',
      '        self.end_headers()',
      '        self.wfile.write(body)',
      'http.server.HTTPServer(("127.0.0.1", 8000), Server).serve_forever()',
      '',
    ].join('\n');
  }
});

describe('the docker driver without a daemon', () => {
  const unreachable = async (host: string) => {
    const fixture = new DockerFixture(host, 'any');
    const driver = fixture.driver();
    try {
      const probe = await driver.probe();
      const failure = await driver.start(fixture.spec(), signalOf()).catch((error: unknown) => error);
      return { probe, failure };
    } finally {
      await driver.close();
      rmSync(fixture.dataDir, { recursive: true, force: true });
    }
  };
  const signalOf = () => AbortSignal.timeout(WAIT_MS);

  test('a missing daemon socket fails with unavailable and the next step', async () => {
    const { probe, failure } = await unreachable('unix:///no/such/docker.sock');
    const reason = expect.stringMatching(/^there is no socket at unix:\/\/\/no\/such\/docker\.sock; start the daemon/);
    expect(probe).toEqual({ available: false, reason });
    expect(failure).toSatisfy(isError('unavailable', /^there is no socket at /));
  });

  test('a daemon socket without a listener is unavailable', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'rookery-docker-'));
    mkdirSync(join(directory, 'x'));
    const path = join(directory, 'dead.sock');
    writeFileSync(path, '');
    try {
      const { failure } = await unreachable(`unix://${path}`);
      expect(failure).toSatisfy(isError('unavailable', /^no daemon listens at /));
    } finally {
      unlinkSync(path);
      rmSync(directory, { recursive: true, force: true });
    }
  });

  test('a daemon of another machine is refused', async () => {
    const { probe, failure } = await unreachable('tcp://192.0.2.1:2375');
    expect(probe).toMatchObject({ available: false });
    expect(failure).toSatisfy(isError('failed_precondition', /must be on this machine/));
  });
});

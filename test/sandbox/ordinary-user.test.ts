import { spawn } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { chown } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = 'test/sandbox/';
const NOBODY = 65534;
const NAMES = ['--testNamePattern', 'is reported|does not reach'];
const TIMEOUT_MS = 480_000;
const MAX_OUTPUT_CHARS = 20_000;
const outside = Object.values(networkInterfaces())
  .flat()
  .find(one => one?.family === 'IPv4' && !one.internal)?.address;

/** Runs files of this folder as another user when the tests run as root. */
describeWith(['root'], 'for an ordinary user', () => {
  test(
    'the tests of process and supervisor sandboxes pass, access and escapes included',
    async () => {
      const home = mkdtempSync(join(tmpdir(), 'rookery-nobody-'));
      await chown(home, NOBODY, NOBODY);
      try {
        // Runs all files in one Vitest, because a start of Vitest takes as long as most of them.
        const files = [
          'process',
          'process-access',
          'process-account-files',
          'one-account',
          'escape',
          'escape-files',
          'supervisor',
        ];
        await expectToPass(
          files.map(name => `${name}.test.ts`),
          home,
          {},
          ['--maxWorkers', '1'],
        );
      } finally {
        rmSync(home, { recursive: true, force: true });
      }
    },
    TIMEOUT_MS,
  );
});

describeWith(['root', 'usernet'], 'for an ordinary user with a program that forwards packets', () => {
  test.each([
    ['user-network.test.ts passes', 'pasta', 'on its loopback', []],
    ['user-network.test.ts passes', 'slirp4netns', 'on its loopback', []],
    // Only these tests depend on the address of the name server.
    ['names are found', 'pasta', 'elsewhere', NAMES],
    ['names are found', 'slirp4netns', 'elsewhere', NAMES],
  ])(
    'for an ordinary user %s with %s, where the host has its name server %s',
    async (_what, program, place, args) => {
      const home = mkdtempSync(join(tmpdir(), 'rookery-nobody-'));
      await chown(home, NOBODY, NOBODY);
      const address =
        place === 'elsewhere' ? outside : `127.53.${process.pid % 250}.${1 + (process.hrtime()[1] % 250)}`;
      const names = address === undefined ? null : await nameServer(address).catch(() => null);
      const name = 'rookery.test';
      writeFileSync(join(home, 'resolv.conf'), `nameserver ${address}\n`);
      try {
        // Hides the other program and lets every user open the device, whatever the machine's own settings
        // are.
        const script = [
          'mount -t tmpfs none /dev/net && mknod /dev/net/tun c 10 200 && chmod 666 /dev/net/tun',
          ...(names === null ? [] : [`mount --bind ${home}/resolv.conf /etc/resolv.conf`]),
          `for other in $(command -v pasta slirp4netns | grep -v '/${program}$'); do mount --bind /dev/null "$other"; done`,
          `exec setpriv --reuid ${NOBODY} --regid ${NOBODY} --clear-groups "$@"`,
        ].join('\n');
        const wrapper = ['unshare', '--mount', 'sh', '-c', script, 'sh'];
        const known = names === null ? {} : { ROOKERY_TEST_NAME: name };
        const env = { REQUIRE: 'usernet,ordinary-user', ...known };
        await expectToPass(['user-network.test.ts'], home, env, args, wrapper);
      } finally {
        names?.close();
        rmSync(home, { recursive: true, force: true });
      }
    },
    TIMEOUT_MS,
  );
});

describeWith(['root', 'docker'], 'for an ordinary user who may use docker', () => {
  test(
    'docker.test.ts passes',
    async () => {
      const { host } = await sharedDocker();
      const home = mkdtempSync(join(tmpdir(), 'rookery-nobody-'));
      await chown(home, NOBODY, NOBODY);
      // Imitates a daemon's socket of a group without members.
      const door = createServer({ allowHalfOpen: true }, socket => {
        const daemon = connect({ path: host.slice('unix://'.length), allowHalfOpen: true });
        for (const each of [socket, daemon])
          each.on('error', () => {
            socket.destroy();
            daemon.destroy();
          });
        socket.pipe(daemon).pipe(socket);
        socket.once('close', () => daemon.destroy());
      });
      const path = join(home, 'docker.sock');
      await new Promise<void>(resolve => door.listen(path, resolve));
      try {
        await chown(path, NOBODY, NOBODY);
        // Docker makes mount points inside other mounts as root, and the test could not remove them.
        const but = ['--testNamePattern', '^(?!.*a mount can lie below another)'];
        await expectToPass(
          ['docker.test.ts'],
          home,
          { ROOKERY_TEST_DOCKER_HOST: `unix://${path}`, REQUIRE: 'docker' },
          but,
        );
      } finally {
        door.close();
        rmSync(home, { recursive: true, force: true });
      }
    },
    TIMEOUT_MS,
  );
});

/** Starts a name server that answers every name with 192.0.2.77. Fails when another program has the port. */
async function nameServer(address: string): Promise<Socket> {
  const server = createSocket('udp4');
  const header = Buffer.from('81800001000100000000', 'hex');
  const answer = Buffer.from('c00c000100010000003c0004c000024d', 'hex');
  server.on('message', (question, { port, address: caller }) => {
    // The answer repeats the one question, without the additional records of the request.
    const end = question.indexOf(0, 12) + 5;
    const isIpv4 = question.readUInt16BE(end - 4) === 1;
    const said = isIpv4 ? header : Buffer.from('81800001000000000000', 'hex');
    server.send(
      Buffer.concat([question.subarray(0, 2), said, question.subarray(12, end), ...(isIpv4 ? [answer] : [])]),
      port,
      caller,
    );
  });
  server.bind(53, address);
  await once(server, 'listening');
  return server;
}

async function expectToPass(
  files: readonly string[],
  home: string,
  env: Readonly<Record<string, string>> = {},
  args: readonly string[] = [],
  wrapper: readonly string[] = [],
): Promise<void> {
  const { code, output } = await runAsNobody(
    ['--run', ...files.map(file => join(FOLDER, file)), ...args],
    home,
    env,
    wrapper,
  );
  // Other users cannot read a work tree below a closed directory. The result then says nothing about the
  // sandbox.
  if (/EACCES|permission denied/i.test(output) && !output.includes('Test Files')) return;
  expect(code, output.slice(-MAX_OUTPUT_CHARS)).toBe(0);
}

/**
 * Runs a command as uid 65534. `wrapper` is a command that changes to that user itself before it runs
 * its arguments.
 */
function runAsNobody(
  args: readonly string[],
  home: string,
  env: Readonly<Record<string, string>>,
  wrapper: readonly string[],
): Promise<{ code: number | null; output: string }> {
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
  const command = [...wrapper, process.execPath, vitest, ...args, '--configLoader', 'runner', '--cache=false'];
  const child = spawn(command[0] as string, command.slice(1), {
    cwd: ROOT,
    ...(wrapper.length === 0 ? { uid: NOBODY, gid: NOBODY } : {}),
    env: { HOME: home, TMPDIR: home, PATH: '/usr/local/bin:/usr/bin:/bin', ...env },
    timeout: TIMEOUT_MS,
  });
  return new Promise((resolve, reject) => {
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text;
      });
    }
    child.on('error', reject);
    child.on('close', code => resolve({ code, output }));
  });
}

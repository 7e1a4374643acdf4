import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { chown } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';

const ROOT = join(import.meta.dirname, '../..');
const NOBODY = 65534;
const TIMEOUT_MS = 240_000;
const MAX_OUTPUT_CHARS = 20_000;

/** The other files of this folder are run by whoever runs the tests; when that is root, here they are run by somebody else too. */
describeWith(['root'], 'for an ordinary user', () => {
  test.each([
    'process.test.ts',
    'process-access.test.ts',
    'escape.test.ts',
    'escape-files.test.ts',
    'supervisor.test.ts',
  ])(
    '%s passes',
    async file => {
      const home = mkdtempSync(join(tmpdir(), 'rookery-nobody-'));
      await chown(home, NOBODY, NOBODY);
      try {
        await expectToPass(file, home);
      } finally {
        rmSync(home, { recursive: true, force: true });
      }
    },
    TIMEOUT_MS,
  );
});

describeWith(['root', 'usernet'], 'for an ordinary user with a program that passes packets on', () => {
  test.each(['pasta', 'slirp4netns'])(
    'user-network.test.ts passes with %s',
    async program => {
      const home = mkdtempSync(join(tmpdir(), 'rookery-nobody-'));
      await chown(home, NOBODY, NOBODY);
      try {
        // Where only that program is, and anybody may open the device, whatever is so on this machine.
        const script = [
          'mount -t tmpfs none /dev/net && mknod /dev/net/tun c 10 200 && chmod 666 /dev/net/tun',
          `for other in $(command -v pasta slirp4netns | grep -v '/${program}$'); do mount --bind /dev/null "$other"; done`,
          `exec setpriv --reuid ${NOBODY} --regid ${NOBODY} --clear-groups "$@"`,
        ].join('\n');
        const wrapper = ['unshare', '--mount', 'sh', '-c', script, 'sh'];
        await expectToPass('user-network.test.ts', home, { REQUIRE: 'usernet,ordinary-user' }, [], wrapper);
      } finally {
        rmSync(home, { recursive: true, force: true });
      }
    },
    TIMEOUT_MS,
  );
});

describeWith(['root', 'docker'], 'for an ordinary user who may speak to docker', () => {
  test(
    'docker.test.ts passes',
    async () => {
      const { host } = await sharedDocker();
      const home = mkdtempSync(join(tmpdir(), 'rookery-nobody-'));
      await chown(home, NOBODY, NOBODY);
      // As if the daemon's socket were of a group that nobody is in.
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
          'docker.test.ts',
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

async function expectToPass(
  file: string,
  home: string,
  env: Readonly<Record<string, string>> = {},
  args: readonly string[] = [],
  wrapper: readonly string[] = [],
): Promise<void> {
  const { code, output } = await runAsNobody(['--run', join('test/sandbox', file), ...args], home, env, wrapper);
  // A work tree below a closed directory cannot be read by others: nothing is said about the sandbox then.
  if (/EACCES|permission denied/i.test(output) && !output.includes('Test Files')) return;
  expect(code, output.slice(-MAX_OUTPUT_CHARS)).toBe(0);
}

/** `wrapper`: a command that becomes nobody itself, before it runs the one that follows it. */
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

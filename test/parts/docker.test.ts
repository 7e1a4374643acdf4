import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { DockerDaemon } from './docker.ts';
import { IMAGE_USER, IMAGES } from './docker-images.ts';
import { isAlive } from './docker-residue.ts';

const TIMEOUT_MS = 120_000;

/**
 * Returns the mounts, interfaces, packet rules, cgroups and directory of a daemon that exist on this machine.
 */
function traces(daemon: DockerDaemon): readonly string[] {
  const directory = daemon.host.slice('unix://'.length).replace(/\/[^/]*$/, '');
  const name = directory.slice(-6).toLowerCase();
  const read = (program: string, ...args: string[]) => execFileSync(program, args, { encoding: 'utf8' }).split('\n');
  return [
    ...read('cat', '/proc/self/mountinfo').filter(line => line.includes(directory)),
    ...read('ip', '-o', 'link').filter(line => line.includes(name)),
    ...read('iptables-save').filter(line => line.includes(name)),
    ...readdirSync('/sys/fs/cgroup').flatMap(root =>
      existsSync(`/sys/fs/cgroup/${root}/rookery-test-${name}`) ? [`cgroup ${root}`] : [],
    ),
    ...(existsSync(directory) ? [directory] : []),
  ];
}

describeWith(['docker'], 'the docker daemon of the tests', () => {
  test('the docker daemon of the tests runs test images next to another daemon without residue', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const [daemon, other] = await Promise.all([
      DockerDaemon.start({ images: ['python', 'plain'] }),
      DockerDaemon.start({ images: ['plain'] }),
    ]);
    try {
      const [version, uid, said] = await Promise.all([
        daemon.docker('run', '--rm', IMAGES.python, 'python3.11', '--version'),
        daemon.docker('run', '--rm', '--user', IMAGE_USER.name, IMAGES.python, 'id', '-u'),
        other.docker('run', '--rm', '--publish', '127.0.0.1::8000', IMAGES.plain, 'echo', 'here'),
      ]);
      expect([version, uid, said]).toEqual(['Python 3.11.2', String(IMAGE_USER.uid), 'here']);
      await daemon.docker('network', 'create', 'tenant');
      await daemon.docker('run', '--detach', '--network', 'tenant', IMAGES.plain, 'sleep', '1000');
      expect(traces(daemon).length).toBeGreaterThan(0);
    } finally {
      await Promise.all([daemon.stop(), other.stop()]);
    }
    expect(traces(daemon)).toEqual([]);
    expect(traces(other)).toEqual([]);
  });

  test('the docker daemon of the tests keeps its containers through halt and resume when live restore is on', {
    timeout: TIMEOUT_MS,
  }, async () => {
    await using daemon = await DockerDaemon.start({ images: ['plain'], liveRestore: true });
    const id = await daemon.docker('run', '--detach', IMAGES.plain, 'sleep', '1000');
    const state = () => daemon.docker('inspect', '--format', '{{.State.Running}} {{.State.Pid}}', id);
    const before = await state();
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      await daemon.halt(signal);
      expect(daemon.pid).toBe(null);
      await daemon.resume();
      expect(await state()).toBe(before);
    }
  });

  test('the docker daemon of the tests keeps the interface docker0 of the machine when it starts again', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const isThere = () => existsSync('/sys/class/net/docker0');
    const isOurs = !isThere();
    if (isOurs) execFileSync('ip', ['link', 'add', 'name', 'docker0', 'type', 'bridge']);
    try {
      await using daemon = await DockerDaemon.start({ images: ['plain'] });
      await daemon.docker('run', '--rm', IMAGES.plain, 'true');
      await daemon.halt();
      await daemon.resume();
      expect(isThere()).toBe(true);
    } finally {
      if (isOurs) execFileSync('ip', ['link', 'delete', 'docker0']);
    }
  });

  test('the docker daemon of the tests removes containers that outlived a killed daemon', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const daemon = await DockerDaemon.start({ images: ['plain'] });
    const id = await daemon.docker('run', '--detach', IMAGES.plain, 'sleep', '1000');
    const pid = await daemon.docker('inspect', '--format', '{{.State.Pid}}', id);
    await daemon.halt('SIGKILL');
    await daemon.stop();
    expect(traces(daemon)).toEqual([]);
    expect(isAlive(Number(pid))).toBe(false);
  });
});

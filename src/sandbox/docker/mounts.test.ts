import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { SandboxSpec } from '../driver.ts';
import { checkMounts, checkTargets, ownerWarnings, verifyMounts } from './mounts.ts';

const mount = (source: string, ownerUid: number | null = 0, readonly = false) => ({
  source,
  target: '/x',
  readonly,
  ownerUid,
});

test('ownerWarnings reports a writable source of another uid, with both uids', () => {
  const mounts = [mount('/a', 0), mount('/b', 1000), mount('/c', 0, true), mount('/d', null)];
  expect(ownerWarnings(mounts, 'worker:staff', 1000, 'image:1')).toEqual([
    '/a belongs to uid 0 and worker has uid 1000 in image:1: writing to it may be denied',
  ]);
  expect(ownerWarnings(mounts, '', 0, 'image:1')).toEqual([
    '/b belongs to uid 1000 and root has uid 0 in image:1: writing to it may be denied',
  ]);
});

test('verifyMounts refuses a source that is not among the mounts of the process', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-mounts-'));
  try {
    await expect(verifyMounts(process.pid, [mount(directory)])).rejects.toThrow(
      `mount source has changed while it was mounted: ${directory}`,
    );
    // /proc is a mount of its own, so the process has a mount with this source.
    await verifyMounts(process.pid, [mount('/proc')]);
    // Each mount of the process matches one entry only, and /proc has fewer than 100 mounts.
    const twice = Array.from({ length: 100 }, () => mount('/proc'));
    await expect(verifyMounts(process.pid, twice)).rejects.toThrow(/has changed/);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test('verifyMounts accepts any mounts of a process that has ended', async () => {
  await verifyMounts(2 ** 22 + 1, [mount('/tmp')]);
});

describe('checkMounts', () => {
  let directory: string;
  beforeEach(() => {
    directory = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-mounts-')));
    for (const name of ['data', 'data/packages', 'allowed', 'allowed-too', 'engine']) mkdirSync(join(directory, name));
    execFileSync('mkfifo', [join(directory, 'allowed/pipe')]);
    symlinkSync('/etc', join(directory, 'allowed/etc'));
    symlinkSync('../data/packages', join(directory, 'allowed/packages'));
    symlinkSync('../allowed-too', join(directory, 'allowed/beside'));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  const check = (source: string, allow: string[] | null = [join(directory, 'allowed')]) => {
    const policy = { closed: [join(directory, 'data'), '/var/lib/docker'], allow };
    const spec = { mounts: [{ source, target: '/x', readonly: true }] } as unknown as SandboxSpec;
    return checkMounts(spec, policy, join(directory, 'engine/own.sock'));
  };

  test.each([
    '/etc',
    '/proc/1/root',
    '/dev/null',
    '/var/lib/docker/volumes',
    '/var/lib',
    'data',
    'data/packages',
    '.',
    'engine',
  ])('checkMounts refuses %s even when mounts.allow permits all paths', async name => {
    const source = name.startsWith('/') ? name : name === '.' ? directory : join(directory, name);
    for (const allow of [null, ['/']]) {
      await expect(check(source, allow)).rejects.toMatchObject({
        code: 'failed_precondition',
        message: expect.stringMatching(/^unsafe mount source: /),
      });
    }
  });

  test.each([
    ['allowed/etc', 'unsafe mount source: SOURCE'],
    ['allowed/etc/shadow', 'unsafe mount source: SOURCE'],
    ['allowed/packages', 'unsafe mount source: SOURCE'],
    ['allowed/packages/no', 'unsafe mount source: SOURCE'],
    ['allowed/pipe', 'unsafe mount source: SOURCE (it is neither a file nor a directory)'],
    ['allowed/beside', 'unsafe mount source: SOURCE (mounts.allow does not name it)'],
    ['allowed-too', 'unsafe mount source: SOURCE (mounts.allow does not name it)'],
    ['no', 'unsafe mount source: SOURCE (mounts.allow does not name it)'],
    ['allowed/no', 'mount source does not exist: SOURCE'],
  ])('checkMounts refuses %s with the message: %s', async (name, message) => {
    const source = join(directory, name);
    await expect(check(source)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: message.replace('SOURCE', source),
    });
  });

  test('checkMounts passes the path without links to the daemon', async () => {
    symlinkSync('data-of-mine', join(directory, 'allowed/mine'));
    mkdirSync(join(directory, 'allowed/data-of-mine'));
    expect(await check(join(directory, 'allowed/mine'))).toMatchObject([
      { source: join(directory, 'allowed/data-of-mine'), target: '/x', readonly: true },
    ]);
  });
});

const OURS = ['/run/rookery', '/opt/rookery/rookery_runtime'];
const targetError = (target: string, readonly = false) => {
  try {
    checkTargets([{ source: '/data', target, readonly }], OURS);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
};

test.each([
  ['/', 'mount target must be a path below /: /'],
  ['', 'mount target must be a path below /: '],
  ['/a/..', 'mount target must be a path below /: /a/..'],
  ['/proc', 'mount target /proc is in /proc, which the sandbox needs'],
  ['/proc/1/', 'mount target /proc/1/ is in /proc, which the sandbox needs'],
  ['/dev//null', 'mount target /dev//null is in /dev, which the sandbox needs'],
  ['/run/rookery', 'mount target /run/rookery hides /run/rookery, which the sandbox needs'],
  ['/run/rookery/a', 'mount target /run/rookery/a hides /run/rookery, which the sandbox needs'],
  [OURS[1] as string, `mount target ${OURS[1]} hides ${OURS[1]}, which the sandbox needs`],
])('checkTargets refuses the target %j', (target, message) => {
  expect(targetError(target)).toBe(message);
});

test('checkTargets requires a mount above the platform directories to be writable', () => {
  expect(targetError('/run')).toBe(null);
  expect(targetError('/run', true)).toBe('mount target /run hides /run/rookery, which the sandbox needs');
  expect(targetError('/opt/rookery', true)).toBe(`mount target /opt/rookery hides ${OURS[1]}, which the sandbox needs`);
});

test.each(['/usr', '/code', '/opt/function/code', '/dev/shm', '/devices', '/run/rooks'])(
  'checkTargets accepts the target %s',
  target => {
    expect(targetError(target, true)).toBe(null);
  },
);

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { KEPT_DIR } from './kept.ts';
import { withMachineLock } from './machine-lock.ts';

const execute = promisify(execFile);

/** Directory that keeps images between runs, since making an image takes longer than the tests. */
const KEPT = join(KEPT_DIR, 'rookery-test-images');
const MAKE_TIMEOUT_MS = 240_000;
const MIRROR = 'http://deb.debian.org/debian';
const SUITE = 'bookworm';

/**
 * The images of the tests, made only from Debian packages, without a registry.
 *
 * `rookery-test/python`: Python 3.11, and the user `worker` (uid 1000).
 * `rookery-test/plain`: one static busybox with its commands, no Python, only the user root; 2 MB.
 */
export const IMAGES = { python: 'rookery-test/python:1', plain: 'rookery-test/plain:1' } as const;

export type ImageName = keyof typeof IMAGES;

/** The user of `IMAGES.python` and its uid. */
export const IMAGE_USER = { name: 'worker', uid: 1000 } as const;

const RECIPES: Readonly<Record<ImageName, (root: string, scratch: string) => Promise<void>>> = {
  python: makePython,
  plain: makePlain,
};

/**
 * Commands that a person expects in a shell. A change needs a new version in `IMAGES`, which names the kept
 * file.
 */
const PLAIN_COMMANDS = [
  'sh',
  'cat',
  'echo',
  'env',
  'id',
  'ls',
  'mkdir',
  'nc',
  'printf',
  'ps',
  'pwd',
  'rm',
  'sleep',
  'stty',
  'true',
  'wc',
];

/**
 * Returns the image as a tar file for `docker import`. The first caller makes a missing file for all others.
 */
export async function imageFile(name: ImageName): Promise<string> {
  const file = join(KEPT, `${IMAGES[name].replace(/[/:]/g, '-')}-${SUITE}.tar`);
  if (!existsSync(file)) {
    await withMachineLock(`image-${name}`, MAKE_TIMEOUT_MS, async () => {
      if (!existsSync(file)) await makeImage(name, file);
    });
  }
  return file;
}

async function makeImage(name: ImageName, file: string): Promise<void> {
  await mkdir(KEPT, { recursive: true });
  const scratch = await mkdtemp(join(KEPT, 'making-'));
  try {
    const root = join(scratch, 'root');
    await mkdir(root);
    await RECIPES[name](root, scratch);
    await execute('tar', ['-C', root, '--one-file-system', '-cf', join(scratch, 'image.tar'), '.'], {
      timeout: MAKE_TIMEOUT_MS,
    });
    await rename(join(scratch, 'image.tar'), file);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function makePython(root: string): Promise<void> {
  await execute('debootstrap', ['--variant=minbase', '--include=python3', SUITE, root, MIRROR], {
    timeout: MAKE_TIMEOUT_MS,
    maxBuffer: 64 * 1024 * 1024,
  });
  await execute('chroot', [root, 'useradd', '--create-home', '--uid', String(IMAGE_USER.uid), IMAGE_USER.name]);
  const unused = [
    ...['var/cache', 'var/lib/apt/lists', 'var/log', 'usr/share/doc', 'usr/share/locale', 'usr/share/man'],
    ...['usr/share/i18n', 'usr/share/perl5', 'usr/lib/x86_64-linux-gnu/gconv'],
  ];
  for (const path of unused) await rm(join(root, path), { recursive: true, force: true });
}

async function makePlain(root: string, scratch: string): Promise<void> {
  await execute('apt-get', ['download', 'busybox-static'], { cwd: scratch, timeout: MAKE_TIMEOUT_MS });
  await execute('sh', ['-c', 'dpkg-deb -x busybox-static_*.deb unpacked'], { cwd: scratch });
  for (const directory of ['bin', 'dev', 'etc', 'proc', 'root', 'sys', 'tmp']) await mkdir(join(root, directory));
  await cp(join(scratch, 'unpacked/bin/busybox'), join(root, 'bin/busybox'));
  for (const command of PLAIN_COMMANDS) await symlink('busybox', join(root, 'bin', command));
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
  await writeFile(join(root, 'etc/group'), 'root:x:0:\n');
  await execute('chmod', ['1777', join(root, 'tmp')]);
}

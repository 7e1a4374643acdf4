import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, realpath, rename, rm, rmdir, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { describeWith } from '../../test/probe.ts';
import { findPath, type OpenedPath, openEntry, openPath } from './opened-path.ts';

let directory: string;
const opened: OpenedPath[] = [];

beforeEach(async () => {
  directory = await realpath(await mkdtemp(join(tmpdir(), 'rookery-opened-')));
});
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
  await rm(directory, { recursive: true, force: true });
});

async function opening(path: string): Promise<OpenedPath | null> {
  const found = await openPath(path);
  if (found !== null) opened.push(found);
  return found;
}

describe('an opened path', () => {
  test('an opened path reads the file that was checked, whatever replaces it', async () => {
    const path = join(directory, 'a');
    await mkdir(path);
    await writeFile(join(path, 'x'), 'first');
    const found = await opening(path);
    await rename(path, join(directory, 'b'));
    await symlink('/etc', path);
    expect(found).toMatchObject({ resolved: path, kind: 'directory' });
    expect(await readFile(`${found?.link}/x`, 'utf8')).toBe('first');
  });

  test('openPath and findPath follow links to their targets', async () => {
    await symlink('/etc', join(directory, 'link'));
    expect(await opening(join(directory, 'link/passwd'))).toMatchObject({ resolved: '/etc/passwd', kind: 'file' });
    expect(await findPath(join(directory, 'link/passwd'))).toMatchObject({ resolved: '/etc/passwd', kind: 'file' });
  });

  test('a pipe and a device are reported as other, without a read or a wait', async () => {
    execFileSync('mkfifo', [join(directory, 'pipe')]);
    for (const path of [join(directory, 'pipe'), '/dev/null']) {
      expect(await opening(path)).toMatchObject({ kind: 'other' });
      expect(await findPath(path)).toMatchObject({ kind: 'other' });
    }
  });

  test('openPath and findPath return null for a missing path', async () => {
    for (const path of [join(directory, 'no'), '/etc/passwd/x', `/${'x'.repeat(5000)}`]) {
      expect(await opening(path)).toBeNull();
      expect(await findPath(path)).toBeNull();
    }
  });

  test('a removed file is not found through the descriptor of another process', async () => {
    const path = join(directory, 'gone');
    await mkdir(path);
    const held = await opening(path);
    await rmdir(path);
    expect(await openPath(held?.link ?? '')).toBeNull();
  });
});

test('openEntry does not follow a link', async () => {
  await symlink('/etc', join(directory, 'link'));
  const parent = await opening(directory);
  const entry = await openEntry(parent as OpenedPath, 'link');
  expect(entry).toMatchObject({ kind: 'other' });
  await entry?.close();
  expect(await openEntry(parent as OpenedPath, 'no')).toBeNull();
});

describeWith(['root', 'namespaces'], 'a path of another mount namespace', () => {
  test('a link through /proc to a file of another mount namespace does not open the file with the same path', async () => {
    const shown = join(directory, 'shown');
    await mkdir(shown);
    const script = `mount -t tmpfs none ${shown} && echo secret > ${shown}/file && echo ready && exec sleep 600`;
    const other = spawn('unshare', ['--mount', 'sh', '-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      await once(other.stdout, 'data');
      const link = join(directory, 'link');
      await symlink(`/proc/${other.pid}/root${shown}`, link);
      expect(await readFile(join(link, 'file'), 'utf8')).toBe('secret\n');
      expect(await opening(link)).toBeNull();
      expect(await opening(join(link, 'file'))).toBeNull();
      // In the mount namespace of this process, a link of the same form resolves to `shown`.
      await symlink(`/proc/self/root${shown}`, join(directory, 'own'));
      expect(await opening(join(directory, 'own'))).toMatchObject({ resolved: shown });
    } finally {
      other.kill('SIGKILL');
      await once(other, 'exit');
    }
  });
});

import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removalsIn } from '../../test/parts/removals.ts';
import { checkHostPath } from '../core/host-path.ts';
import type { Job } from '../core/job.ts';
import type { FileSource } from '../core/runtime-env.ts';
import { type OpenedPath, openPath } from '../lib/opened-path.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import { JobFiles } from './job-files.ts';
import { JobPackages } from './packages.ts';
import { JobPaths } from './paths.ts';

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-job-files-'));
  await mkdir(join(directory, 'allowed'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

/** Makes job files that call `swap` between the check of a path and its use. */
function files(swap: () => Promise<void> = async () => {}): JobFiles {
  const dataDir = join(directory, 'data');
  const policy = { closed: [dataDir], allow: [join(directory, 'allowed')] };
  const removals = removalsIn(dataDir);
  const disk = new TenantDisk(Number.MAX_SAFE_INTEGER);
  return new JobFiles({
    disk,
    paths: new JobPaths(dataDir),
    packages: new JobPackages({
      dataDir,
      removals,
      maxBytes: 1000,
      keepMs: 1000,
      maxPackagesPerTenant: 10,
      disk,
      node: { id: 'n', cluster: null },
      places: null,
    }),
    removals,
    limits: { maxBytes: 1000, maxEntries: 10 },
    takesHostDirectories: true,
    openHostPath: async path => {
      const opened = (await checkHostPath('workspace', path, policy, openPath)) as OpenedPath;
      await swap();
      return opened;
    },
  });
}

const job = (source: FileSource, as: 'workingDir' | 'pyModules') =>
  ({
    sequence: 1,
    tenant: 'acme',
    spec: {
      runtimeEnv: { workingDir: as === 'workingDir' ? source : null, pyModules: as === 'pyModules' ? [source] : [] },
    },
  }) as unknown as Job;
const host = (path: string): FileSource => ({ kind: 'host', path });

function archive(path: string, content: string): void {
  const program = 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").writestr("x", sys.argv[2])';
  execFileSync('python3', ['-c', program, path, content]);
}

test.each(['workingDir', 'pyModules'] as const)('a job with %s follows the rule for host paths', async as => {
  const packages = join(directory, 'data/packages/other');
  await mkdir(packages, { recursive: true });
  archive(join(packages, 'theirs.zip'), 'secret');
  await symlink(packages, join(directory, 'allowed/link'));
  execFileSync('mkfifo', [join(directory, 'allowed/pipe')]);
  for (const path of [
    ...['/etc', '/proc/self/environ', packages, join(packages, 'theirs.zip'), join(directory, 'allowed/link')],
    ...[join(directory, 'allowed/link/theirs.zip'), join(directory, 'allowed/pipe'), directory, join(directory, 'no')],
  ]) {
    await expect(files().check(job(host(path), as))).rejects.toThrow(/^unsafe workspace: /);
    await expect(files().place(job(host(path), as))).rejects.toThrow(/^unsafe workspace: /);
  }
});

test('an archive that is swapped after the check is read as it was checked', async () => {
  const path = join(directory, 'allowed/mine.zip');
  archive(path, 'mine');
  archive(join(directory, 'secret.zip'), 'secret');
  const placed = await files(async () => {
    await rename(path, join(directory, 'moved.zip'));
    await symlink(join(directory, 'secret.zip'), path);
  }).place(job(host(path), 'workingDir'));
  const work = placed.platformMounts[0]?.source ?? '';
  expect(await readdir(work)).toEqual(['x']);
  expect(await readFile(join(work, 'x'), 'utf8')).toBe('mine');
});

test('the package of another tenant is unknown', async () => {
  await mkdir(join(directory, 'data/packages/other'), { recursive: true });
  archive(join(directory, 'data/packages/other/theirs.zip'), 'secret');
  for (const name of ['theirs.zip', '../other/theirs.zip', '..']) {
    await expect(files().place(job({ kind: 'package', name }, 'workingDir'))).rejects.toThrow(
      /was not uploaded|the name of a package must be/,
    );
  }
});

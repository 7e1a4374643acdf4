import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { MountSpec } from '../core/mount.ts';
import { type JobPaths, PYTHON_BIN } from './paths.ts';

const run = promisify(execFile);
const ASK_TIMEOUT_MS = 10_000;
const ASK = 'import sys; print(sys.base_prefix); print("%d.%d.%d" % sys.version_info[:3])';

/** The interpreter that `python` is in a job. */
export interface JobPython {
  /** `3.11.7` */
  readonly version: string;
  readonly path: string;
  /** Directories inside, for `PATH`. */
  readonly binDirs: readonly string[];
  readonly mounts: readonly MountSpec[];
}

/** Makes an interpreter usable in jobs: under the names `python` and `python3`, with everything that belongs to it. */
export async function provePython(path: string, paths: JobPaths): Promise<JobPython> {
  const { stdout } = await run(path, ['-I', '-c', ASK], { timeout: ASK_TIMEOUT_MS, cwd: '/' });
  const [prefix = '', version = ''] = stdout.trim().split('\n');
  const bin = join(paths.pythons, createHash('sha256').update(path).digest('hex').slice(0, 16));
  await mkdir(bin, { recursive: true, mode: 0o755 });
  for (const name of ['python', 'python3']) {
    await symlink(path, join(bin, name)).catch(error => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
  const inside = paths.inside(bin, PYTHON_BIN);
  const ofSystem = prefix === '/usr' || prefix.startsWith('/usr/');
  return {
    version,
    path,
    binDirs: [inside, dirname(path)],
    mounts: [
      { source: bin, target: inside, readonly: true },
      ...(ofSystem ? [] : [{ source: prefix, target: prefix, readonly: true }]),
    ],
  };
}

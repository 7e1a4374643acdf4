import { createHash } from 'node:crypto';
import { mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { askPython, type Python } from '../builds/python.ts';
import { type JobPaths, PYTHON_BIN } from './paths.ts';

/** Interpreter that `python` names in a job. */
export interface JobPython extends Python {
  /** Directories inside the sandbox, for `PATH`. */
  readonly binDirs: readonly string[];
}

/** Makes an interpreter usable in jobs, under the names `python` and `python3`, with its libraries. */
export async function provePython(path: string, paths: JobPaths): Promise<JobPython> {
  const python = await askPython(path);
  const bin = join(paths.pythons, createHash('sha256').update(path).digest('hex').slice(0, 16));
  await mkdir(bin, { recursive: true, mode: 0o755 });
  for (const name of ['python', 'python3']) {
    await symlink(path, join(bin, name)).catch(error => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
  const inside = paths.inside(bin, PYTHON_BIN);
  return {
    ...python,
    binDirs: [inside, dirname(path)],
    mounts: [{ source: bin, target: inside, readonly: true }, ...python.mounts],
  };
}

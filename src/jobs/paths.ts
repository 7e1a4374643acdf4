import { join } from 'node:path';

/** Paths of job files, on the host and inside a sandbox. */
export class JobPaths {
  readonly #root: string;
  /** False: the driver has no mounts, so paths inside a sandbox equal those of the host. */
  hasMounts = true;

  constructor(dataDir: string) {
    this.#root = join(dataDir, 'jobs');
  }

  get logs(): string {
    return join(this.#root, 'logs');
  }

  get work(): string {
    return join(this.#root, 'work');
  }

  get environments(): string {
    return join(this.#root, 'environments');
  }

  get pythons(): string {
    return join(this.#root, 'pythons');
  }

  /** Returns the directory of all files of an open job. */
  workOf(sequence: number): string {
    return join(this.work, String(sequence));
  }

  /** Returns the path inside a sandbox of the host directory `source`, which is mounted at `target`. */
  inside(source: string, target: string): string {
    return this.hasMounts ? target : source;
  }
}

export const WORKSPACE = '/workspace';
export const MODULES = '/opt/rookery/modules';
export const ENVIRONMENT = '/opt/rookery/environment';
export const PYTHON_BIN = '/opt/rookery/bin';

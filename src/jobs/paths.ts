import { join } from 'node:path';

/** Where things of jobs stand: on the host, and inside a sandbox. */
export class JobPaths {
  readonly #root: string;
  /** Without mounts everything inside stands where it stands on the host. */
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

  /** Everything that one job has on the disk while it is not over. */
  workOf(sequence: number): string {
    return join(this.work, String(sequence));
  }

  /** Where a directory of the host that is called `target` inside can be found inside. */
  inside(source: string, target: string): string {
    return this.hasMounts ? target : source;
  }
}

export const WORKSPACE = '/workspace';
export const MODULES = '/opt/rookery/modules';
export const ENVIRONMENT = '/opt/rookery/environment';
export const PYTHON_BIN = '/opt/rookery/bin';

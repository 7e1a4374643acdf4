import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canFilter } from './daemon.ts';
import type { Engine } from './engine.ts';

/**
 * The options of security of every container: no new rights, and our filter of system calls instead of the daemon's own, which lets modes
 * with set-user-id bits pass. A daemon that cannot filter would refuse to start a container with one.
 */
export class SecurityOptions {
  readonly #engine: Engine;
  readonly #pythonDir: string;
  #options: Promise<readonly string[]> | undefined;

  /** `pythonDir`: of `rookery_zygote`. */
  constructor(engine: Engine, pythonDir: string) {
    this.#engine = engine;
    this.#pythonDir = pythonDir;
  }

  /** As the Engine takes them; asked once. */
  get(): Promise<readonly string[]> {
    if (this.#options === undefined) {
      const asking = this.#ask();
      this.#options = asking;
      asking.catch(() => {
        this.#options = undefined;
      });
    }
    return this.#options;
  }

  async #ask(): Promise<readonly string[]> {
    const [hasFilter, profile] = await Promise.all([canFilter(this.#engine), readProfile(this.#pythonDir)]);
    return hasFilter ? ['no-new-privileges', `seccomp=${profile}`] : ['no-new-privileges'];
  }
}

async function readProfile(pythonDir: string): Promise<string> {
  const text = await readFile(join(pythonDir, 'rookery_zygote', 'container_filter.json'), 'utf8');
  // It goes with every create, without the spaces.
  return JSON.stringify(JSON.parse(text));
}

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { canFilter } from './daemon.ts';
import type { Engine } from './engine.ts';

/**
 * Security options of every container: `no-new-privileges`, and Rookery's seccomp filter instead of the
 * daemon's. The daemon's filter permits modes with set-user-id bits. A daemon without seccomp would refuse a
 * container with a filter, so it gets none.
 */
export class SecurityOptions {
  readonly #engine: Engine;
  readonly #pythonDir: string;
  #options: Promise<readonly string[]> | undefined;

  /** `pythonDir`: the directory of `rookery_zygote`. */
  constructor(engine: Engine, pythonDir: string) {
    this.#engine = engine;
    this.#pythonDir = pythonDir;
  }

  /** Returns the options in the Engine's format. The daemon is asked once. */
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
  // Every create request contains the profile, so drop its white space.
  return JSON.stringify(JSON.parse(text));
}

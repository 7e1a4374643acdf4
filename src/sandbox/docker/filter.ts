import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { DaemonFacts } from './daemon.ts';

/**
 * The options of security of every container: no new rights, and our filter of system calls instead of the daemon's own, which lets modes
 * with set-user-id bits pass. A daemon that cannot filter would refuse to start a container with one. `pythonDir`: of `rookery_launcher`.
 */
export class SecurityOptions {
  readonly #pythonDir: string;
  readonly #facts: () => Promise<DaemonFacts>;
  #profile: Promise<string> | undefined;

  constructor(pythonDir: string, facts: () => Promise<DaemonFacts>) {
    this.#pythonDir = pythonDir;
    this.#facts = facts;
  }

  /** As the Engine takes them. */
  async get(): Promise<string[]> {
    const { hasFilter } = await this.#facts();
    if (!hasFilter) return ['no-new-privileges'];
    this.#profile ??= readProfile(this.#pythonDir);
    return ['no-new-privileges', `seccomp=${await this.#profile}`];
  }
}

async function readProfile(pythonDir: string): Promise<string> {
  const text = await readFile(join(pythonDir, 'rookery_launcher', 'container_filter.json'), 'utf8');
  // It goes with every create, without the spaces.
  return JSON.stringify(JSON.parse(text));
}

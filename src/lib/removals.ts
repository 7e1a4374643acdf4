import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rename } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Backoff, backoffMs } from './backoff.ts';
import { removeTree } from './remove-tree.ts';
import { isTaken } from './system-errors.ts';

export interface RemovalsOptions {
  /**
   * Keeps what could not be removed at once. Must be on the file system of the removed paths, and used for
   * nothing else.
   */
  readonly directory: string;
  /** Called for each failure, with the last name of the path and the reason. */
  readonly report: (name: string, reason: string) => void;
  /** Time until the first retry; each retry that fails doubles it, up to an hour. */
  readonly retryMs?: number;
}

/** Returns the directory in which a service keeps files that it could not remove. */
export function leftoversIn(dataDir: string): string {
  return join(dataDir, 'leftovers');
}

const FIRST_RETRY_MS = 60_000;
const LONGEST_RETRY_MS = 3_600_000;

/**
 * Removes files and directories that foreign code could write to. Moves a path that cannot be removed aside,
 * so that its name is free. Retries the removal later, in the next service too.
 */
export class Removals {
  readonly #options: RemovalsOptions;
  /** Paths that could not even be moved aside. */
  readonly #inPlace = new Set<string>();
  #waiting = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #backoff: Backoff;
  #retries = 0;
  #isClosed = false;

  constructor(options: RemovalsOptions) {
    this.#options = options;
    this.#backoff = { firstMs: options.retryMs ?? FIRST_RETRY_MS, longestMs: LONGEST_RETRY_MS };
  }

  /** Number of files and directories that are still to be removed. */
  get waiting(): number {
    return this.#waiting + this.#inPlace.size;
  }

  /**
   * Removes a path. Never rejects. Afterwards nothing exists at the path, unless it cannot be moved either
   * (something is mounted on it).
   */
  async remove(path: string): Promise<void> {
    try {
      await removeTree(path);
    } catch (error) {
      this.#report(path, error);
      await this.#setAside(path);
      this.#schedule();
    }
  }

  /** Starts to remove, in the background, what an earlier service could not remove. */
  start(): void {
    void this.retry();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  /** Tries once to remove everything that waits. Never rejects. */
  async retry(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { directory } = this.#options;
    const aside = await readdir(directory).catch(() => []);
    let left = 0;
    for (const path of [...aside.map(name => join(directory, name)), ...this.#inPlace]) {
      if (this.#isClosed) return;
      try {
        await removeTree(path);
        this.#inPlace.delete(path);
      } catch (error) {
        this.#report(path, error);
        if (!this.#inPlace.has(path)) left += 1;
      }
    }
    this.#waiting = left;
    this.#retries = this.waiting === 0 ? 0 : this.#retries + 1;
    if (this.waiting > 0) this.#schedule();
  }

  async #setAside(path: string): Promise<void> {
    try {
      // Not recursive: a deleted data directory must not be created again.
      await mkdir(this.#options.directory, { mode: 0o700 }).catch(error => {
        if (!isTaken(error)) throw error;
      });
      await rename(path, join(this.#options.directory, randomUUID()));
      this.#waiting += 1;
    } catch {
      this.#inPlace.add(path);
    }
  }

  /** Keeps the time of a pending retry: repeated failures could otherwise postpone it forever. */
  #schedule(): void {
    if (this.#isClosed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => void this.retry(), backoffMs(this.#backoff, this.#retries + 1)).unref();
  }

  #report(path: string, error: unknown): void {
    this.#options.report(basename(path), error instanceof Error ? error.message : String(error));
  }
}

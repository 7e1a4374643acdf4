import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rename } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Backoff, backoffMs } from './backoff.ts';
import { removeTree } from './remove-tree.ts';
import { isTaken } from './system-errors.ts';

export interface RemovalsOptions {
  /** Keeps what could not be removed at once. On the file system of what is removed, and used for nothing else. */
  readonly directory: string;
  /** Called for each failure, with the last name of the path and the reason. */
  readonly report: (name: string, reason: string) => void;
  /** Until the first retry; doubled by each that leaves something, up to an hour. */
  readonly retryMs?: number;
}

/** The directory in which a service keeps its leftovers. */
export function leftoversIn(dataDir: string): string {
  return join(dataDir, 'leftovers');
}

const FIRST_RETRY_MS = 60_000;
const LONGEST_RETRY_MS = 3_600_000;

/**
 * Removes files and directories that foreign code could write to. It moves aside a path that it cannot remove, so that its place is free, and tries it
 * again later, by the next service too.
 */
export class Removals {
  readonly #options: RemovalsOptions;
  /** Paths that could not even be set aside. */
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

  /** Files and directories that are still to be removed. */
  get waiting(): number {
    return this.#waiting + this.#inPlace.size;
  }

  /** Never rejects. When it resolves the path is gone, unless it cannot be moved either (something is mounted on it). */
  async remove(path: string): Promise<void> {
    try {
      await removeTree(path);
    } catch (error) {
      this.#report(path, error);
      await this.#setAside(path);
      this.#schedule();
    }
  }

  /** Tries in the background to remove what an earlier service left. */
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
      // Not what is above it: a data directory that is gone stays gone.
      await mkdir(this.#options.directory, { mode: 0o700 }).catch(error => {
        if (!isTaken(error)) throw error;
      });
      await rename(path, join(this.#options.directory, randomUUID()));
      this.#waiting += 1;
    } catch {
      this.#inPlace.add(path);
    }
  }

  /** A retry that is due already stays when it is: else it would never come where something is always left. */
  #schedule(): void {
    if (this.#isClosed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => void this.retry(), backoffMs(this.#backoff, this.#retries + 1)).unref();
  }

  #report(path: string, error: unknown): void {
    this.#options.report(basename(path), error instanceof Error ? error.message : String(error));
  }
}

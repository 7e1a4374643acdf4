import { statSync } from 'node:fs';
import { stat, statfs } from 'node:fs/promises';
import { basename } from 'node:path';
import { Interval } from '../lib/interval.ts';
import { isAbsent } from '../lib/system-errors.ts';

const LOOK_MS = 2_000;
/** Least free space: below it, almost no write succeeds (a page of the database, a log, a socket). */
const MIN_FREE_BYTES = 256 * 1024;

/** Returns the identity (device and inode) of the file at a path; null when none exists. */
export function fileAt(path: string): string | null {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? null : `${found.dev}:${found.ino}`;
}

export interface DataDirWatchOptions {
  readonly path: string;
  /** Files that must keep their identity. */
  readonly files: readonly string[];
  /** Called once when a file was removed or replaced, or could not be repaired. */
  readonly onLost: (problem: string) => void;
  /** Runs with each check: restores missing files if possible, and returns the remaining problem, or null. */
  readonly repair: () => Promise<string | null>;
}

/** Checks every 2 s that the files of a data directory are unchanged and that its disk has free space. */
export class DataDirWatch {
  readonly #options: DataDirWatchOptions;
  readonly #files: readonly (readonly [path: string, file: string | null])[];
  readonly #interval = new Interval(LOOK_MS, () => this.check());
  #lost: string | null = null;
  #full: string | null = null;

  constructor(options: DataDirWatchOptions) {
    this.#options = options;
    this.#files = options.files.map(path => [path, fileAt(path)]);
    this.#interval.start();
  }

  problem(): string | null {
    return this.#lost ?? this.#full;
  }

  /** Resolves when no check is running. */
  close(): Promise<void> {
    return this.#interval.close();
  }

  /** Checks once. Never rejects. */
  async check(): Promise<void> {
    const { path, onLost, repair } = this.#options;
    if (this.#lost === null) {
      try {
        this.#lost = (await this.#missing()) ?? (await repair());
      } catch {
        // A failed check proves nothing.
      }
      if (this.#lost !== null) onLost(this.#lost);
    }
    await statfs(path).then(
      ({ bavail, bsize }) => {
        const isFull = bavail * bsize < MIN_FREE_BYTES;
        this.#full = isFull ? 'the disk of the data directory is full' : null;
      },
      () => undefined,
    );
  }

  async #missing(): Promise<string | null> {
    for (const [path, file] of this.#files) {
      const now = await stat(path).then(
        ({ dev, ino }) => `${dev}:${ino}`,
        (error: unknown) => {
          if (isAbsent(error)) return null;
          throw error;
        },
      );
      if (now !== file) return lostSentence(path);
    }
    return null;
  }
}

/** Returns the error text of every write after the loss. */
export function lostSentence(path: string): string {
  return `${basename(path)} of the data directory was removed or replaced while the service ran: nothing that is written now would last; stop the service and put a backup back (docs/operate/backup.md)`;
}

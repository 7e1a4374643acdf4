import { statSync } from 'node:fs';
import { stat, statfs } from 'node:fs/promises';
import { basename } from 'node:path';
import { Rounds } from '../lib/rounds.ts';
import { isAbsent } from '../lib/system-errors.ts';

const LOOK_MS = 2_000;
/** Below it hardly anything can be written any more: a page of the database, a log, a socket. */
const MIN_FREE_BYTES = 256 * 1024;

/** Which file a path leads to; null when it leads to none. */
export function fileAt(path: string): string | null {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? null : `${found.dev}:${found.ino}`;
}

export interface DataDirWatchOptions {
  readonly path: string;
  /** Files that must stay what they are. */
  readonly files: readonly string[];
  /** Told once when one of them is gone, or another one has taken its place. */
  readonly onLost: (problem: string) => void;
  /** With each look: puts back what can be put back, and says what cannot. */
  readonly repair: () => Promise<string | null>;
}

/** Looks every few seconds whether a data directory is still the one that was opened, and whether it has room. */
export class DataDirWatch {
  readonly #options: DataDirWatchOptions;
  readonly #files: readonly (readonly [path: string, file: string | null])[];
  readonly #rounds = new Rounds(LOOK_MS, () => this.look());
  #lost: string | null = null;
  #full: string | null = null;

  constructor(options: DataDirWatchOptions) {
    this.#options = options;
    this.#files = options.files.map(path => [path, fileAt(path)]);
    this.#rounds.start();
  }

  problem(): string | null {
    return this.#lost ?? this.#full;
  }

  /** Resolves when no look is under way any more. */
  close(): Promise<void> {
    return this.#rounds.close();
  }

  /** Never rejects. */
  async look(): Promise<void> {
    const { path, onLost, repair } = this.#options;
    if (this.#lost === null) {
      try {
        this.#lost = (await this.#missing()) ?? (await repair());
      } catch {
        // A failed look proves nothing.
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

/** The refusal of every write from then on. */
export function lostSentence(path: string): string {
  return `${basename(path)} of the data directory was removed or replaced while the service ran: nothing that is written now would last; stop the service and put a backup back (docs/operations.md)`;
}

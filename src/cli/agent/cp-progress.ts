import { MEBIBYTE } from '../../core/units.ts';
import type { Io } from '../shared/io.ts';
import { printable } from '../shared/print.ts';

const SHOW_MS = 100;

/** Shows the progress of a copy on stderr, only on a terminal. */
export class CopyProgress {
  readonly #io: Io;
  #files = 0;
  #bytes = 0;
  #shownAtMs = 0;

  constructor(io: Io) {
    this.#io = io;
  }

  addBytes(bytes: number): void {
    this.#bytes += bytes;
    this.#show();
  }

  addFile(): void {
    this.#files += 1;
    this.#show();
  }

  /** Warns about an entry that the copy omits. */
  warn(sentence: string): void {
    this.#clear();
    this.#io.err.write(`${printable(sentence)}\n`);
  }

  end(): void {
    this.#clear();
    if (this.#io.err.isTerminal) this.#io.err.write(`copied ${this.#text()}\n`);
  }

  #show(): void {
    if (!this.#io.err.isTerminal || Date.now() - this.#shownAtMs < SHOW_MS) return;
    this.#shownAtMs = Date.now();
    this.#io.err.write(`\r\x1b[K${this.#text()}`);
  }

  #clear(): void {
    if (this.#io.err.isTerminal) this.#io.err.write('\r\x1b[K');
  }

  #text(): string {
    return `${this.#files} ${this.#files === 1 ? 'file' : 'files'}, ${(this.#bytes / MEBIBYTE).toFixed(1)} MiB`;
  }
}

import { linkedTo } from '../../lib/linked-signal.ts';
import type { Io } from '../shared/io.ts';
import type { Sort } from './top-sorts.ts';

const SORT_KEYS: Readonly<Record<string, Sort>> = { c: 'cpu', m: 'memory', k: 'calls', e: 'errors', n: 'name' };
const CTRL_C = '\x03';

/** The choices that the keys of `rookery top` have made. */
export class TopKeys {
  sort: Sort;
  isHelpShown = false;
  /** Aborts when the user presses q or Ctrl-C, or when the command ends otherwise. */
  readonly signal: AbortSignal;
  readonly #ending: ReturnType<typeof linkedTo>;
  readonly #io: Io;
  readonly #onKeys = (chunk: Buffer | string) => this.#read(String(chunk));
  /** Draws again after a key has changed the view. */
  #changed: () => void = () => undefined;

  constructor(io: Io, sort: Sort) {
    this.#io = io;
    this.sort = sort;
    this.#ending = linkedTo(io.signal);
    this.signal = this.#ending.controller.signal;
  }

  /** Reads keys until `stop`. Does nothing without a terminal. */
  start(changed: () => void): void {
    if (this.#io.terminal === undefined) return;
    this.#changed = changed;
    this.#io.terminal.setRaw(true);
    this.#io.stdin.on('data', this.#onKeys);
  }

  stop(): void {
    this.#ending.unlink();
    if (this.#io.terminal === undefined) return;
    this.#io.stdin.off('data', this.#onKeys).pause();
    this.#io.terminal.setRaw(false);
  }

  #read(keys: string): void {
    for (const key of keys) {
      if (key === 'q' || key === 'Q' || key === CTRL_C) this.#ending.controller.abort();
      else if (key === 'h' || key === '?') this.isHelpShown = !this.isHelpShown;
      else this.sort = SORT_KEYS[key] ?? this.sort;
    }
    if (!this.signal.aborted) this.#changed();
  }
}

export const KEY_HELP = 'q: quit   sort by c: CPU, m: memory, k: calls, e: errors, n: name   h: hide this';
export const KEY_HINT = 'q: quit   h: keys';

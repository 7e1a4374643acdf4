import type { StoredInstance } from '../storage/instances.ts';

/** What a row has of a sandbox that was there before it. */
export type Placed = Pick<StoredInstance, 'handle' | 'sandbox' | 'startedAtMs'>;

export interface LateRowOptions {
  /** Writes the row, CREATING. False: its name or its idempotency key is taken. */
  readonly write: (placed: Placed | null) => Promise<boolean>;
  /** The start has failed before anything was written; tells those who hear of changes. */
  readonly never: (reason: string) => void;
  /** Called once it is written, or will never be. */
  readonly over: () => void;
}

/** A start that takes longer has its row before its sandbox: whoever lists instances sees it then. */
const LATEST_MS = 20;

/**
 * The first row of an instance, which follows its sandbox: it is written once, with the sandbox when that is there soon. Until then a sandbox that a
 * server leaves is an orphan.
 */
export class LateRow {
  readonly #options: LateRowOptions;
  readonly #timer: NodeJS.Timeout;
  #writing: Promise<boolean> | undefined;
  #startedAtMs = 0;
  #isTaken = false;

  constructor(options: LateRowOptions) {
    this.#options = options;
    this.#timer = setTimeout(() => this.begin(null), LATEST_MS);
  }

  /** When the sandbox that the row names has started; 0: it names none. */
  get startedAtMs(): number {
    return this.#startedAtMs;
  }

  /** Whether its name or its idempotency key was found taken. */
  get isTaken(): boolean {
    return this.#isTaken;
  }

  /** Begins to write it, unless that has begun. */
  begin(placed: Placed | null): void {
    if (this.#writing !== undefined) return;
    clearTimeout(this.#timer);
    this.#startedAtMs = placed?.startedAtMs ?? 0;
    this.#writing = this.#options.write(placed).finally(this.#options.over);
    this.#writing.then(
      isWritten => {
        this.#isTaken = !isWritten;
      },
      () => undefined,
    );
  }

  /** Waits for the write. Fails when it does. False: it is taken. */
  async written(): Promise<boolean> {
    this.begin(null);
    return (await this.#writing) === true;
  }

  /** The start has failed: false when nothing was written, nor ever will be. Never rejects. */
  async cancel(reason: string): Promise<boolean> {
    clearTimeout(this.#timer);
    if (this.#writing === undefined) {
      this.#writing = Promise.resolve(false);
      this.#options.never(reason);
      this.#options.over();
      return false;
    }
    return await this.#writing.catch(() => true);
  }
}

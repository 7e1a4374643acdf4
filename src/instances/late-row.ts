import type { StoredInstance } from '../storage/queries/instances.ts';

/** Columns of a sandbox that started before its record was written. */
export type Placed = Pick<StoredInstance, 'handle' | 'sandbox' | 'startedAtMs'>;

export interface LateRowOptions {
  /** Writes the record as CREATING. Returns false if its name or its idempotency key is taken. */
  readonly write: (placed: Placed | null) => Promise<boolean>;
  /** Notifies subscribers of a start that failed before anything was written. */
  readonly never: (reason: string) => void;
  /** Called once the record is written, or can no longer be written. */
  readonly over: () => void;
}

/** Longest delay of the record in milliseconds. Listings show a slower start before its sandbox exists. */
const LATEST_MS = 20;

/**
 * First record of an instance, written once: with its sandbox, or without after `LATEST_MS`. If the server
 * dies before the write, the sandbox is an orphan.
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

  /** Returns the start time of the recorded sandbox in epoch milliseconds; 0: the record names no sandbox. */
  get startedAtMs(): number {
    return this.#startedAtMs;
  }

  /** Returns true if the write found the name or the idempotency key taken. */
  get isTaken(): boolean {
    return this.#isTaken;
  }

  /** Starts the write, unless it has started. */
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

  /** Waits for the write and fails if it fails. Returns false if the name or the idempotency key is taken. */
  async written(): Promise<boolean> {
    this.begin(null);
    return (await this.#writing) === true;
  }

  /**
   * Cancels the write after a failed start. Returns false if no record exists or will exist. Never rejects.
   */
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

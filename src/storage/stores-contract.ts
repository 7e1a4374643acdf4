import type { Database } from './database.ts';
import type { DurableWrites } from './durable.ts';

/** The database of a service. With SQLite: reads on the thread that asks, everything that changes something on a thread of its own. */
export interface Stores {
  readonly kind: 'sqlite' | 'postgres';
  /** Without transactions: they are write operations of `writes`. */
  readonly database: Database;
  readonly writes: DurableWrites;
  /** From now on nothing is written: every write fails with this, and is reported as the problem. */
  refuseWrites(problem: string): void;
  /**
   * Waits for what was begun. True when all of it is in the database's own file: the write-ahead log is empty. `onWhole` is awaited once
   * that is so and before the log may go: SQLite removes it with the last connection.
   */
  close(onWhole?: () => Promise<void>): Promise<boolean>;
}

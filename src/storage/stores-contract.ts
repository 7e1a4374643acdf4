import type { Database } from './database.ts';
import type { DurableWrites } from './writes/durable.ts';

/**
 * The database of a service. With SQLite, reads run on the calling thread and changes run on a separate
 * thread.
 */
export interface Stores {
  readonly kind: 'sqlite' | 'postgres';
  /** Has no transactions: they are write operations of `writes`. */
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Makes every pending and later write fail with this problem, which `writes.problem()` reports too. */
  refuseWrites(problem: string): void;
  /**
   * Waits for started writes. Returns true when the write-ahead log is empty, so the database file is
   * complete. Awaits `onWhole` in that case, before SQLite removes the log with the last connection.
   */
  close(onWhole?: () => Promise<void>): Promise<boolean>;
}

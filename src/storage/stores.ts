import { statSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { Kysely } from 'kysely';
import { type Database, migrate, type Tables } from './database.ts';
import type { DurableWrites } from './durable.ts';
import { splitDialect } from './split-dialect.ts';
import { openSqlite, sqliteDialect } from './sqlite.ts';
import { WriteClient } from './write-client.ts';
import type { WriteOperations } from './write-thread.ts';

/** The database of a service: reads on the thread that asks, everything that changes something on a thread of its own. */
export interface Stores {
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

export interface StoresOptions {
  /** What the thread can be ordered to do. */
  readonly operations: WriteOperations;
  /** A program that calls `serveWrites` with the same operations and the file, which is its `workerData`. */
  readonly program: URL;
}

/** Opens the database at `file` and brings it to the newest migration. Fails with `internal`. */
export async function openStores(file: string, { operations, program }: StoresOptions): Promise<Stores> {
  // Begun first: it loads its program while the rest goes on.
  const thread = new Worker(program, { workerData: file, name: 'writes' });
  const writes = new WriteClient(thread, operations);
  let reader: ReturnType<typeof openSqlite> | undefined;
  try {
    reader = openSqlite(file);
    await migrate(new Kysely<Tables>({ dialect: sqliteDialect(reader) }), file);
    // The rest is the thread's: two writers would wait for each other.
    reader.exec('PRAGMA query_only = ON');
  } catch (error) {
    reader?.close();
    await thread.terminate();
    throw error;
  }
  const database = new Kysely<Tables>({ dialect: splitDialect(reader, (sql, values) => writes.query(sql, values)) });
  return {
    database,
    writes,
    refuseWrites: problem => writes.refuse(problem),
    async close(onWhole = async () => undefined) {
      await database.destroy();
      await writes.close();
      const isLogEmpty = () => (statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) === 0;
      const isWhole = isLogEmpty();
      if (isWhole) await onWhole();
      // The last connection.
      if (reader.isOpen) reader.close();
      // A close tries once more to empty the log.
      if (!isWhole && isLogEmpty()) await onWhole();
      return isLogEmpty();
    },
  };
}

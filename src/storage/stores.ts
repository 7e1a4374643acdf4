import { statSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { Kysely } from 'kysely';
import { migrate, type Tables } from './database.ts';
import type { PostgresOptions } from './postgres-connections.ts';
import { splitDialect } from './split-dialect.ts';
import { openSqlite, sqliteDialect } from './sqlite.ts';
import type { Stores } from './stores-contract.ts';
import { WriteClient } from './write-client.ts';
import type { WriteOperations } from './write-thread.ts';

/** Where the database is: a file of the embedded SQLite, or a PostgreSQL. */
export type StorePlace = { readonly file: string } | PostgresOptions;

export interface StoresOptions {
  /** What the thread can be ordered to do. */
  readonly operations: WriteOperations;
  /** A program that calls `serveWrites` with the same operations and the file, which is its `workerData`. */
  readonly program: URL;
}

/**
 * Opens the database and brings it to the newest migration. Fails with `internal`; with `failed_precondition` when a newer version wrote it, or
 * a PostgreSQL cannot be reached.
 */
export async function openStores(place: StorePlace, options: StoresOptions): Promise<Stores> {
  if ('file' in place) return await openSqliteStores(place.file, options);
  const { openPostgresStores } = await import('./postgres-stores.ts');
  return await openPostgresStores(place);
}

async function openSqliteStores(file: string, { operations, program }: StoresOptions): Promise<Stores> {
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
    kind: 'sqlite',
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

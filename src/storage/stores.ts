import { statSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { Kysely } from 'kysely';
import { migrate, type Tables } from './database.ts';
import type { PostgresOptions } from './postgres/postgres-connections.ts';
import { splitDialect } from './split-dialect.ts';
import { makeShrinkable, openSqlite, sqliteDialect } from './sqlite.ts';
import type { Stores } from './stores-contract.ts';
import { WriteClient } from './writes/write-client.ts';
import type { WriteOperations } from './writes/write-thread.ts';

/** The location of the database: a file of the embedded SQLite, or a PostgreSQL. */
export type StorePlace = { readonly file: string } | PostgresOptions;

export interface StoresOptions {
  /** The write operations that the thread can run. */
  readonly operations: WriteOperations;
  /**
   * A program that calls `serveWrites` with the same operations and with the file, which is its `workerData`.
   */
  readonly program: URL;
}

/**
 * Opens the database and applies all missing migrations. Fails with `failed_precondition` when a newer
 * version wrote it or PostgreSQL cannot be reached, else with `internal`.
 */
export async function openStores(place: StorePlace, options: StoresOptions): Promise<Stores> {
  if ('file' in place) return await openSqliteStores(place.file, options);
  const { openPostgresStores } = await import('./postgres/postgres-stores.ts');
  return await openPostgresStores(place);
}

async function openSqliteStores(file: string, { operations, program }: StoresOptions): Promise<Stores> {
  // Started first: the thread loads its program during the migrations.
  const thread = new Worker(program, { workerData: file, name: 'writes' });
  const writes = new WriteClient(thread, operations);
  let reader: ReturnType<typeof openSqlite> | undefined;
  try {
    reader = openSqlite(file);
    makeShrinkable(reader);
    await migrate(new Kysely<Tables>({ dialect: sqliteDialect(reader) }), file);
    // From now on only the thread writes: two writers would wait for each other.
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
      // This is the last connection.
      if (reader.isOpen) reader.close();
      // The close has tried once more to empty the log.
      if (!isWhole && isLogEmpty()) await onWhole();
      return isLogEmpty();
    },
  };
}

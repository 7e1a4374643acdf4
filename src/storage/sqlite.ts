import { DatabaseSync, type DatabaseSyncInstance, type StatementSyncInstance } from '@photostructure/sqlite';
import { SqliteDialect } from 'kysely';
import { internal, messageOf, unavailable } from '../core/error.ts';
import { storable } from './storable.ts';

/**
 * Opens the embedded database: one file, WAL, foreign keys on. A new file can shrink. `synchronous=NORMAL`
 * loses no acknowledged write at `kill -9`; only a power cut may lose the last ones. A write that must
 * survive a power cut uses `DurableWrites`. Fails with `internal`.
 */
export function openSqlite(file: string): DatabaseSyncInstance {
  let raw: DatabaseSyncInstance | undefined;
  try {
    raw = new DatabaseSync(file);
    // On a file with pages, SQLite would write this setting into the header at each open, which fails on a
    // full disk.
    if (pragma(raw, 'page_count') === 0) raw.exec('PRAGMA auto_vacuum = INCREMENTAL');
    raw.exec(`
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = NORMAL;
      PRAGMA foreign_keys = ON;
      PRAGMA busy_timeout = 5000;
      PRAGMA temp_store = MEMORY;
    `);
    return raw;
  } catch (error) {
    raw?.close();
    throw internal(`the database ${file} could not be opened: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Largest file that is rebuilt at start so that it can shrink. VACUUM of a larger one would delay the start.
 */
const CHEAP_BYTES = 64 * 1024 * 1024;

/**
 * Rebuilds a small file of an earlier version, so that it can shrink. No other connection may have the file
 * open.
 */
export function makeShrinkable(raw: DatabaseSyncInstance): void {
  if (pragma(raw, 'auto_vacuum') !== 0 || pragma(raw, 'page_count') * pragma(raw, 'page_size') > CHEAP_BYTES) return;
  raw.exec('PRAGMA auto_vacuum = INCREMENTAL; VACUUM');
}

/** Returns the value of a numeric pragma. */
function pragma(raw: DatabaseSyncInstance, name: string): number {
  return Number(Object.values(raw.prepare(`PRAGMA ${name}`).get() ?? {})[0]);
}

/** Creates Kysely's SQLite dialect over the API of `node:sqlite`. */
export function sqliteDialect(raw: DatabaseSyncInstance): SqliteDialect {
  return new SqliteDialect({ database: { close: () => raw.close(), ...prepareOnce(raw) } });
}

/**
 * Returns up to 256 free pages to the file system. SQLite frees one page per step, as if each page were a
 * result.
 */
export const SHRINK = 'pragma incremental_vacuum(256)';

export interface PreparedStatements {
  prepare(sql: string): {
    /** True when the statement returns results. */
    readonly reader: boolean;
    all(parameters: readonly unknown[]): unknown[];
    run(parameters: readonly unknown[]): { changes: number | bigint; lastInsertRowid: number | bigint };
    iterate(parameters: readonly unknown[]): IterableIterator<unknown>;
  };
}

/** Prepares each statement of a database at its first use and keeps at most `MAX_PREPARED` of them. */
export function prepareOnce(raw: DatabaseSyncInstance): PreparedStatements {
  const prepared = new Map<string, ReturnType<PreparedStatements['prepare']>>();
  return {
    prepare(sql) {
      const known = prepared.get(sql);
      if (known !== undefined) return known;
      const ready = raw.prepare(sql);
      type Values = Parameters<StatementSyncInstance['all']>;
      const statement = {
        // Kept, because `columns()` costs as much as a small query.
        reader: ready.columns().length > 0 || sql === SHRINK,
        all: (parameters: readonly unknown[]) => {
          try {
            return ready.all(...(toSqlite(parameters) as Values));
          } catch (error) {
            throw readable(error);
          }
        },
        run: (parameters: readonly unknown[]) => {
          // SQLite rolls back by itself when the disk is full. A second error would hide the cause.
          if (sql === 'rollback' && !raw.isTransaction) return NOTHING;
          try {
            return ready.run(...(toSqlite(parameters) as Values));
          } catch (error) {
            throw readable(error);
          }
        },
        iterate: (parameters: readonly unknown[]) =>
          ready.iterate(...(toSqlite(parameters) as Values)) as IterableIterator<unknown>,
      };
      if (prepared.size < MAX_PREPARED) prepared.set(sql, statement);
      return statement;
    },
  };
}

const MAX_PREPARED = 500;

function toSqlite(parameters: readonly unknown[]): readonly unknown[] {
  for (const value of parameters) {
    if (typeof value === 'string' && value.includes('\0')) {
      return parameters.map(each => (typeof each === 'string' ? storable(each) : each));
    }
  }
  return parameters;
}

const NOTHING = { changes: 0, lastInsertRowid: 0 };
/** SQLite's result codes for problems of the disk: the last eight bits of each extended code. */
const SQLITE_IOERR = 10;
const SQLITE_FULL = 13;
/** SQLite's messages for these codes: a query that returns results fails without a numeric code. */
const BY_TEXT: Readonly<Record<string, number>> = {
  'database or disk is full': SQLITE_FULL,
  'disk I/O error': SQLITE_IOERR,
};
const DISK_RETRY_SECONDS = 5;

/** Converts an error of the disk into one that a caller may read; returns every other error unchanged. */
function readable(error: unknown): unknown {
  const { errcode = BY_TEXT[messageOf(error)] } = error as { errcode?: number };
  const about = { cause: error, retryAfterSeconds: DISK_RETRY_SECONDS };
  switch ((errcode ?? 0) & 0xff) {
    case SQLITE_FULL:
      return unavailable('the disk is full: nothing can be written to the data directory', about);
    case SQLITE_IOERR:
      return unavailable(`cannot write to the disk of the data directory: ${messageOf(error)}`, about);
    default:
      return error;
  }
}

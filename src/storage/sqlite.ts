import { DatabaseSync, type DatabaseSyncInstance, type StatementSyncInstance } from '@photostructure/sqlite';
import { SqliteDialect } from 'kysely';
import { internal, messageOf, unavailable } from '../core/error.ts';
import { storable } from './storable.ts';

/**
 * The embedded database: one file, WAL, foreign keys on. `synchronous=NORMAL` loses no acknowledged write at `kill -9` (only a
 * power cut may take the last ones); a write whose acknowledgement promises more goes through `DurableWrites`. Fails with
 * `internal`.
 */
export function openSqlite(file: string): DatabaseSyncInstance {
  let raw: DatabaseSyncInstance | undefined;
  try {
    raw = new DatabaseSync(file);
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

/** What Kysely's SQLite dialect asks of a database, over the API of `node:sqlite`. */
export function sqliteDialect(raw: DatabaseSyncInstance): SqliteDialect {
  return new SqliteDialect({ database: { close: () => raw.close(), ...prepareOnce(raw) } });
}

export interface PreparedStatements {
  prepare(sql: string): {
    /** Whether it answers rows. */
    readonly reader: boolean;
    all(parameters: readonly unknown[]): unknown[];
    run(parameters: readonly unknown[]): { changes: number | bigint; lastInsertRowid: number | bigint };
    iterate(parameters: readonly unknown[]): IterableIterator<unknown>;
  };
}

/** Statements of a database, each prepared at its first use. */
export function prepareOnce(raw: DatabaseSyncInstance): PreparedStatements {
  const prepared = new Map<string, ReturnType<PreparedStatements['prepare']>>();
  return {
    prepare(sql) {
      const known = prepared.get(sql);
      if (known !== undefined) return known;
      const ready = raw.prepare(sql);
      type Values = Parameters<StatementSyncInstance['all']>;
      const statement = {
        // Asking each time costs as much as a small query.
        reader: ready.columns().length > 0,
        all: (parameters: readonly unknown[]) => {
          try {
            return ready.all(...(toSqlite(parameters) as Values));
          } catch (error) {
            throw readable(error);
          }
        },
        run: (parameters: readonly unknown[]) => {
          // SQLite has undone it by itself when the disk was full; a second error would hide why.
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
/** SQLite's own numbers of what is wrong with the disk, the last eight bits of each code. */
const SQLITE_IOERR = 10;
const SQLITE_FULL = 13;
/** What SQLite calls them: a query that answers rows fails without a number here. */
const BY_TEXT: Readonly<Record<string, number>> = {
  'database or disk is full': SQLITE_FULL,
  'disk I/O error': SQLITE_IOERR,
};
const DISK_RETRY_SECONDS = 5;

/** What the disk refused, as an error that a caller may read; everything else as it is. */
function readable(error: unknown): unknown {
  const { errcode = BY_TEXT[messageOf(error)] } = error as { errcode?: number };
  const about = { cause: error, retryAfterSeconds: DISK_RETRY_SECONDS };
  switch ((errcode ?? 0) & 0xff) {
    case SQLITE_FULL:
      return unavailable('the disk is full: nothing can be written to the data directory', about);
    case SQLITE_IOERR:
      return unavailable(`the disk does not take what is written to the data directory: ${messageOf(error)}`, about);
    default:
      return error;
  }
}

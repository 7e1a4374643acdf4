import { DatabaseSync, type DatabaseSyncInstance, type StatementSyncInstance } from '@photostructure/sqlite';
import { SqliteDialect } from 'kysely';
import { internal, messageOf } from '../core/error.ts';

/**
 * The embedded database: one file, WAL, foreign keys on. `synchronous=NORMAL` loses no acknowledged write at `kill -9` (only a
 * power cut may take the last ones); a write whose acknowledgement promises more goes through `durably` of
 * `storage/database.ts`. Fails with `internal`.
 */
export function openSqlite(file: string): { dialect: SqliteDialect; raw: DatabaseSyncInstance } {
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
  } catch (error) {
    raw?.close();
    throw internal(`the database ${file} could not be opened: ${messageOf(error)}`, { cause: error });
  }
  return { dialect: new SqliteDialect({ database: asKyselyDatabase(raw) }), raw };
}

/** What Kysely's SQLite dialect asks of a database, over the API of `node:sqlite`. Statements are prepared once. */
function asKyselyDatabase(raw: DatabaseSyncInstance) {
  const prepared = new Map<string, Prepared>();
  return {
    close: () => raw.close(),
    prepare(sql: string) {
      let statement = prepared.get(sql);
      if (!statement) {
        const ready = raw.prepare(sql);
        statement = { ready, reader: ready.columns().length > 0 };
        if (prepared.size < MAX_PREPARED) prepared.set(sql, statement);
      }
      const { ready, reader } = statement;
      type Values = Parameters<StatementSyncInstance['all']>;
      return {
        reader,
        all: (parameters: readonly unknown[]) => ready.all(...(parameters as Values)),
        run: (parameters: readonly unknown[]) => ready.run(...(parameters as Values)),
        iterate: (parameters: readonly unknown[]) =>
          ready.iterate(...(parameters as Values)) as IterableIterator<unknown>,
      };
    },
  };
}

interface Prepared {
  readonly ready: StatementSyncInstance;
  /** Whether it answers rows; asking each time costs as much as a small query. */
  readonly reader: boolean;
}

const MAX_PREPARED = 500;

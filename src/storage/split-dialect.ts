import type { DatabaseSyncInstance } from '@photostructure/sqlite';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  SelectQueryNode,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import { internal } from '../core/error.ts';
import { type PreparedStatements, prepareOnce } from './sqlite.ts';

/** Runs a query that changes something. */
export type WriteQuery = (sql: string, parameters: readonly unknown[]) => Promise<QueryResult<unknown>>;

const READS = /^\s*(select|pragma|explain)\b/i;

/**
 * Creates a dialect that reads from `reader` and sends changes to `write`. Reads see every committed change,
 * so every write that was answered before. Transactions are not supported: they are write operations of
 * `DurableWrites`. The caller closes `reader`.
 */
export function splitDialect(reader: DatabaseSyncInstance, write: WriteQuery): Dialect {
  return {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new SplitDriver(reader, write),
    createIntrospector: db => new SqliteIntrospector(db),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  };
}

class SplitDriver implements Driver {
  /** Serves all callers with one connection: reads are synchronous, and writes wait in `write`. */
  readonly #connection: SplitConnection;

  constructor(reader: DatabaseSyncInstance, write: WriteQuery) {
    this.#connection = new SplitConnection(prepareOnce(reader), write);
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection;
  }

  beginTransaction(): Promise<void> {
    throw internal('a transaction has to be a write operation of DurableWrites: this database only reads');
  }

  async commitTransaction(): Promise<void> {}

  async rollbackTransaction(): Promise<void> {}

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {}
}

class SplitConnection implements DatabaseConnection {
  readonly #statements: PreparedStatements;
  readonly #write: WriteQuery;

  constructor(statements: PreparedStatements, write: WriteQuery) {
    this.#statements = statements;
    this.#write = write;
  }

  async executeQuery<R>({ query, sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    const isRead = SelectQueryNode.is(query) || (query.kind === 'RawNode' && READS.test(sql));
    if (!isRead) return (await this.#write(sql, parameters)) as QueryResult<R>;
    return { rows: this.#statements.prepare(sql).all(parameters) as R[] };
  }

  // biome-ignore lint/correctness/useYield: it only refuses
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw internal('this database does not stream: ask for pages');
  }
}

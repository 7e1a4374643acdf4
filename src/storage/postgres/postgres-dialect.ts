import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
  SelectQueryNode,
} from 'kysely';
import type { PoolClient } from 'pg';
import { internal } from '../../core/error.ts';
import { type Connections, toPostgres } from './postgres-connections.ts';
import { isRefused, lost, readable } from './postgres-errors.ts';

/** Throws when writes are no longer allowed. */
export type CheckWrite = () => void;

/**
 * Creates a dialect for single queries, each of which takes a connection. A read that lost its connection is
 * retried. A change is retried only when the server refused it before running it. Transactions are not
 * supported: they are write operations of `DurableWrites`. The caller closes the connections.
 */
export function pooledDialect(connections: Connections, checkWrite: CheckWrite): Dialect {
  return {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new PooledDriver(connections, checkWrite),
    createIntrospector: db => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
}

class PooledDriver implements Driver {
  readonly #connection: PooledConnection;

  constructor(connections: Connections, checkWrite: CheckWrite) {
    this.#connection = new PooledConnection(connections, checkWrite);
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection;
  }

  beginTransaction(): Promise<void> {
    throw internal(
      'a transaction has to be a write operation of DurableWrites: this database only runs single queries',
    );
  }

  async commitTransaction(): Promise<void> {}

  async rollbackTransaction(): Promise<void> {}

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {}
}

class PooledConnection implements DatabaseConnection {
  readonly #connections: Connections;
  readonly #checkWrite: CheckWrite;

  constructor(connections: Connections, checkWrite: CheckWrite) {
    this.#connections = connections;
    this.#checkWrite = checkWrite;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const isRead = SelectQueryNode.is(query.query) || (query.query.kind === 'RawNode' && READS.test(query.sql));
    if (!isRead) this.#checkWrite();
    const deadlineMs = performance.now() + this.#connections.waitMs;
    for (;;) {
      const client = await this.#connections.acquire(deadlineMs);
      try {
        const result = await runOn<R>(client, query);
        this.#connections.release(client);
        return result;
      } catch (error) {
        const isBroken = this.#connections.release(client, error);
        if (!isBroken) throw readable(error);
        if (!isRead && !isRefused(error)) throw lost(error);
        if (performance.now() >= deadlineMs) throw readable(error);
      }
    }
  }

  // biome-ignore lint/correctness/useYield: it only refuses
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw internal('this database does not stream: ask for pages');
  }
}

const READS = /^\s*(select|show|explain)\b/i;
const CHANGES = new Set(['INSERT', 'UPDATE', 'DELETE', 'MERGE']);

/** Runs one query on one connection. Fails with the errors of `pg`. */
export async function runOn<R>(client: PoolClient, { sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
  const { command, rowCount, rows } = await client.query(sql, parameters.map(toPostgres));
  return {
    rows: rows as R[],
    ...(CHANGES.has(command) ? { numAffectedRows: BigInt(rowCount ?? 0) } : {}),
  };
}

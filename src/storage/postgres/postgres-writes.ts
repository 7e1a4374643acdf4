import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  Kysely,
  type QueryResult,
  Transaction,
} from 'kysely';
import type { PoolClient } from 'pg';
import { internal, resourceExhausted, ServiceError } from '../../core/error.ts';
import { pause } from '../../lib/backoff.ts';
import type { Tables, WriteTransaction } from '../database.ts';
import type { DurableWrites, WriteOperation } from '../writes/durable.ts';
import { BOUNDS, type Connections } from './postgres-connections.ts';
import { type CheckWrite, pooledDialect, runOn } from './postgres-dialect.ts';
import { isConflict, lost, readable } from './postgres-errors.ts';

const MAX_WAITING = 10_000;
const MAX_TRIES = 3;
const CONFLICT_PAUSE_MS = 20;
/** Repeats the session limits: behind a connection pooler, each transaction may have another session. */
const BEGIN = [
  'begin isolation level read committed',
  `set local statement_timeout = ${BOUNDS.statementMs}`,
  `set local lock_timeout = ${BOUNDS.lockMs}`,
  `set local idle_in_transaction_session_timeout = ${BOUNDS.idleMs}`,
].join('; ');

/**
 * `DurableWrites` to PostgreSQL: each operation has its own transaction. A conflict with other transactions
 * is retried, at most three tries in all. A connection lost before the commit is retried until the wait for a
 * connection ends. Fails with `unavailable` when the database cannot be reached (nothing was written). Also
 * when the answer to the commit was lost: the write may exist or not.
 */
export class PostgresWrites implements DurableWrites {
  readonly #connections: Connections;
  readonly #checkWrite: CheckWrite;
  readonly #dialect: Dialect;
  readonly #driver: Driver;
  readonly #database: Kysely<Tables>;
  /** Limit of concurrent writes, so that reads always find a connection. */
  readonly #maxRunning: number;
  readonly #waiting: (() => void)[] = [];
  /** The accepted writes, each with the function that rejects its caller. */
  readonly #open = new Map<Promise<unknown>, (reason: ServiceError) => void>();
  #running = 0;
  #isClosing = false;

  constructor(connections: Connections, poolSize: number, checkWrite: CheckWrite) {
    this.#connections = connections;
    this.#checkWrite = checkWrite;
    this.#maxRunning = Math.max(1, poolSize - Math.ceil(poolSize / 4));
    this.#dialect = pooledDialect(connections, checkWrite);
    this.#driver = this.#dialect.createDriver();
    this.#database = new Kysely<Tables>({ dialect: this.#dialect });
  }

  async write<A extends readonly unknown[], R>(operation: WriteOperation<A, R>, ...args: A): Promise<R> {
    if (this.#isClosing) throw internal('the database is closed');
    this.#checkWrite();
    if (this.#open.size >= MAX_WAITING) {
      throw resourceExhausted(`${MAX_WAITING} writes are waiting for the database`, { retryAfterSeconds: 1 });
    }
    const done = this.#inTurn(transaction => operation(transaction, ...args));
    return await new Promise<R>((resolve, reject) => {
      this.#open.set(done, reject);
      done.then(resolve, reject).finally(() => this.#open.delete(done));
    });
  }

  /** Fails every accepted write. Each ends in the background, and may have been committed. */
  failAccepted(reason: ServiceError): void {
    for (const fail of this.#open.values()) fail(reason);
  }

  problem(): string | null {
    return this.#connections.problem();
  }

  /** Waits for the accepted writes. Does not close the connections. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await Promise.allSettled(this.#open.keys());
  }

  async #inTurn<R>(work: (transaction: WriteTransaction) => Promise<R>): Promise<R> {
    // A finished write operation passes its slot to the next waiting one.
    if (this.#running < this.#maxRunning) this.#running += 1;
    else await new Promise<void>(resolve => this.#waiting.push(resolve));
    try {
      return await this.#untilDone(work);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  async #untilDone<R>(work: (transaction: WriteTransaction) => Promise<R>): Promise<R> {
    const deadlineMs = performance.now() + this.#connections.waitMs;
    for (let tries = 1; ; ) {
      const client = await this.#connections.acquire(deadlineMs);
      const attempt = new Attempt(client);
      try {
        const result = await attempt.run(work, connection => this.#transactionOn(connection));
        this.#connections.release(client);
        return result;
      } catch (error) {
        const isBroken = this.#connections.release(client, attempt.broken ?? error);
        if (attempt.isCommitSent && isBroken) throw lost(error);
        if (error instanceof ServiceError) throw error;
        if (isConflict(error) && tries < MAX_TRIES) {
          tries += 1;
          await pause(Math.random() * CONFLICT_PAUSE_MS * tries);
        } else if (!isBroken || performance.now() >= deadlineMs) throw readable(error);
        this.#checkWrite();
      }
    }
  }

  #transactionOn(connection: DatabaseConnection): WriteTransaction {
    const executor = this.#database.getExecutor().withConnectionProvider({
      provideConnection: consumer => consumer(connection),
    });
    const [dialect, driver] = [this.#dialect, this.#driver];
    return new Transaction<Tables>({ config: { dialect }, dialect, driver, executor });
  }
}

/** A single try of an operation on a connection. */
class Attempt implements DatabaseConnection {
  readonly #client: PoolClient;
  isCommitSent = false;
  /** The error that broke the connection, even if the operation swallowed it. */
  broken: unknown;

  constructor(client: PoolClient) {
    this.#client = client;
  }

  async run<R>(
    work: (transaction: WriteTransaction) => Promise<R>,
    transactionOn: (connection: DatabaseConnection) => WriteTransaction,
  ): Promise<R> {
    await this.#client.query(BEGIN);
    let result: R;
    try {
      result = await work(transactionOn(this));
    } catch (error) {
      // If this fails too, the server rolls back when the connection ends.
      await this.#client.query('rollback').catch((cause: unknown) => {
        this.broken ??= cause;
      });
      throw error;
    }
    this.isCommitSent = true;
    const { command } = await this.#client.query('commit');
    // The operation swallowed the error of a query.
    if (command !== 'COMMIT') throw internal('a write operation continued after one of its queries had failed');
    return result;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    return await runOn<R>(this.#client, query);
  }

  // biome-ignore lint/correctness/useYield: it only refuses
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw internal('this database does not stream: ask for pages');
  }
}

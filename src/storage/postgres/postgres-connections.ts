import type { Pool, PoolClient, PoolConfig } from 'pg';
import { Away, internal, type ServiceError } from '../../core/error.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { endsWithin, within } from '../../lib/deadline.ts';
import { storable } from '../storable.ts';
import { away, isAway, isWrongUrl, reasonOf } from './postgres-errors.ts';

export interface PostgresOptions {
  readonly url: string;
  /** Longest wait for a connection. */
  readonly waitMs: number;
  readonly poolSize: number;
  /**
   * Time without an answer after which a connection is closed; absent: 5 s after the server's statement
   * timeout.
   */
  readonly answerTimeoutMs?: number;
}

/**
 * Limits that the database server enforces, so that no client holds a lock or a connection for long. A
 * process that stops during a write must not keep a lease from other replicas.
 */
export const BOUNDS = { statementMs: 10_000, lockMs: 5_000, idleMs: 5_000 } as const;
/** Longer than the server's own limit. Only a hanging server or a broken network takes longer. */
const ANSWER_TIMEOUT_MS = BOUNDS.statementMs + 5_000;
const RETRY = { firstMs: 50, longestMs: 1_000 };
const FULL_PAUSE_MS = 50;
const TOO_MANY = '53300';

interface Outage {
  problem: string;
  readonly over: Promise<void>;
}

/**
 * Limits of the session, and a query that shows whether the server accepts writes: one round trip per new
 * connection.
 */
const BEGIN_SESSION = [
  `set statement_timeout = ${BOUNDS.statementMs}`,
  `set lock_timeout = ${BOUNDS.lockMs}`,
  `set idle_in_transaction_session_timeout = ${BOUNDS.idleMs}`,
  "select current_setting('transaction_read_only') = 'on' as only_reads",
].join('; ');

const ABOUT = "select current_setting('server_version') as version, current_setting('server_encoding') as encoding";

/**
 * The connections to a PostgreSQL that may become unreachable and return. During an outage one loop retries,
 * and all callers wait for that loop. After an outage only new connections are used: an old one may lead to a
 * former primary.
 */
export class Connections {
  readonly #pool: Pool;
  readonly #options: PostgresOptions;
  /** The number of outages before each connection was made. */
  readonly #ages = new WeakMap<PoolClient, number>();
  #age = 0;
  #outage: Outage | null = null;
  #hasConnected = false;
  #isClosed = false;

  private constructor(pool: Pool, options: PostgresOptions) {
    this.#pool = pool;
    this.#options = options;
    pool.on('error', error => this.isAway(error));
    // A connection in use reports its error to the query too.
    pool.on('connect', client => void client.on('error', () => undefined));
  }

  /** Loads `pg` on the first use, and creates the pool without connecting. */
  static async open(options: PostgresOptions): Promise<Connections> {
    const config = {
      ...poolConfig(options.url, options.poolSize),
      connectionTimeoutMillis: options.waitMs,
      query_timeout: options.answerTimeoutMs ?? ANSWER_TIMEOUT_MS,
      onConnect: beginSession,
    };
    return new Connections(new (await loadPool())(config), options);
  }

  get waitMs(): number {
    return this.#options.waitMs;
  }

  /** Returns why the database cannot be used now; null when it can. */
  problem(): string | null {
    return this.#outage === null ? null : `the database cannot be reached: ${this.#outage.problem}`;
  }

  /**
   * Returns a connection, which the caller returns with `release`. Fails with `unavailable` when none is free
   * by `deadlineMs`.
   */
  async acquire(deadlineMs: number): Promise<PoolClient> {
    for (;;) {
      if (this.#isClosed) throw internal('the database is closed');
      const leftMs = deadlineMs - performance.now();
      if (this.#outage !== null) {
        const { over, problem } = this.#outage;
        if (leftMs <= 0 || !(await endsWithin(over, leftMs))) throw away(new Error(problem));
        continue;
      }
      if (leftMs <= 0) throw this.#busy();
      const client = await this.#connect(leftMs);
      if (client !== null) return client;
    }
  }

  /**
   * Returns the connection to the pool, or closes it when `error` shows that it is broken. True when it was
   * closed.
   */
  release(client: PoolClient, error?: unknown): boolean {
    const isBroken = error !== undefined && this.isAway(error);
    client.release(isBroken);
    return isBroken;
  }

  /** Returns true when `error` shows that the server is unreachable. Starts the retry loop in that case. */
  isAway(error: unknown): boolean {
    if (!isAway(error)) return false;
    if (this.#outage === null && !this.#isClosed) {
      this.#age += 1;
      this.#outage = { problem: reasonOf(error), over: this.#waitForServer() };
    }
    return true;
  }

  /** Returns the version and encoding of the server: `15.6 (Debian 15.6-0+deb12u1)`, `UTF8`. */
  async about(deadlineMs: number): Promise<{ readonly version: string; readonly encoding: string }> {
    const client = await this.acquire(deadlineMs);
    try {
      const { rows } = await client.query(ABOUT);
      return rows[0];
    } finally {
      client.release();
    }
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#pool.end();
  }

  /** Returns null when the caller should try again. */
  async #connect(leftMs: number): Promise<PoolClient | null> {
    const coming = this.#pool.connect();
    try {
      const client = await within(coming, leftMs, () => this.#busy());
      this.#hasConnected = true;
      return this.#isOld(client) ? null : client;
    } catch (error) {
      // A connection that arrives after the timeout returns to the pool.
      coming.then(
        client => client.release(),
        () => undefined,
      );
      if ((error as { code?: unknown }).code === TOO_MANY && this.#pool.totalCount > 0) {
        await pause(FULL_PAUSE_MS);
        return null;
      }
      // The pool fails in the same way when all connections are in use.
      const isBusy = this.#pool.totalCount >= this.#options.poolSize && this.#pool.idleCount === 0;
      if (isBusy || !isConnectProblem(error)) throw isBusy ? this.#busy() : error;
      // Before the first connection, such an error means a wrong URL. Later a password may be changing, so
      // retry.
      if (!this.#hasConnected && isWrongUrl(error)) throw error;
      this.isAway(error instanceof Error ? withoutState(error) : error);
      return null;
    }
  }

  #isOld(client: PoolClient): boolean {
    const age = this.#ages.get(client);
    if (age === undefined) this.#ages.set(client, this.#age);
    if (age === undefined || age === this.#age) return false;
    client.release(true);
    return true;
  }

  #busy(): ServiceError {
    const { waitMs, poolSize } = this.#options;
    return new Away(`no connection to the database was free within ${waitMs} ms, of at most ${poolSize}`, {
      retryAfterSeconds: 1,
    });
  }

  /** Resolves when the server is reachable again. Never rejects. */
  async #waitForServer(): Promise<void> {
    for (let failures = 0; !this.#isClosed; failures++) {
      if (failures > 0) await pause(backoffMs(RETRY, failures));
      if (this.#isClosed) break;
      try {
        const client = await this.#pool.connect();
        if (this.#isOld(client)) {
          failures = -1;
          continue;
        }
        client.release();
        break;
      } catch (error) {
        if (this.#outage !== null) this.#outage.problem = reasonOf(error);
      }
    }
    this.#outage = null;
  }
}

/** Returns host and database of a URL, without user and password. */
export function placeOf(url: string): string {
  try {
    const { host, pathname, searchParams } = new URL(url);
    return `${host || (searchParams.get('host') ?? 'localhost')}${pathname}`;
  } catch {
    return 'of storage.url';
  }
}

export async function loadPool(): Promise<typeof Pool> {
  const { default: pg } = await import('pg');
  return pg.Pool;
}

export function poolConfig(url: string, poolSize: number): PoolConfig {
  return {
    connectionString: url,
    max: poolSize,
    application_name: 'rookery',
    keepAlive: true,
    // The parsers that `pg` uses, one function per type.
    types: TYPES as NonNullable<PoolConfig['types']>,
  };
}

async function beginSession(client: { query(text: string): Promise<unknown> }): Promise<void> {
  const results = (await client.query(BEGIN_SESSION)) as readonly { rows: readonly { only_reads: boolean }[] }[];
  if (results.at(-1)?.rows[0]?.only_reads !== false) throw new Error('the server only reads, as a standby does');
}

function isConnectProblem(error: unknown): boolean {
  return error instanceof Error && error.name !== 'ServiceError';
}

/**
 * Removes the SQLSTATE. A server that refuses the connection (a password, a missing database) then counts as
 * unreachable.
 */
function withoutState(error: Error): Error {
  return new Error(error.message, { cause: error });
}

/** Converts a value for PostgreSQL so that both databases store the same value. Callers see no difference. */
export function toPostgres(value: unknown): unknown {
  if (typeof value === 'string') return storable(value);
  // The columns hold integers; SQLite is less strict.
  if (typeof value === 'number' && !Number.isInteger(value)) return Math.trunc(value);
  return value;
}

function whole(value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  throw internal(`the database holds the number ${value}, which is too large to be read exactly`);
}

function bytes(value: string): Uint8Array {
  const buffer = Buffer.from(value.slice(2), 'hex');
  return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.length);
}

/** Parsers by type number in PostgreSQL's catalog. */
const READERS = new Map<number, (value: string) => unknown>([
  [16, value => value === 't'],
  [17, bytes],
  [20, whole],
  [21, Number],
  [23, Number],
  [700, Number],
  [701, Number],
  // The type of a sum of integers.
  [1700, whole],
]);

/** The parsers for `pg`: every value arrives as text. */
export const TYPES = {
  getTypeParser: (type: number) => READERS.get(type) ?? ((value: string) => value),
};

import type { Pool, PoolClient, PoolConfig } from 'pg';
import { Away, internal, type ServiceError } from '../core/error.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { endsWithin, within } from '../lib/deadline.ts';
import { away, isAway, reasonOf } from './postgres-errors.ts';
import { TYPES } from './postgres-values.ts';

export interface PostgresOptions {
  readonly url: string;
  /** How long somebody waits for a connection. */
  readonly waitMs: number;
  readonly poolSize: number;
  /** When a connection whose server says nothing is given up; absent: some seconds after the server's own bounds. */
  readonly answerTimeoutMs?: number;
}

/**
 * Limits that the database server enforces, so that nobody holds a row or a connection for long. A process that stops in the middle of a
 * write must not keep a lease from the replicas that take it over.
 */
export const BOUNDS = { statementMs: 10_000, lockMs: 5_000, idleMs: 5_000 } as const;
/** Longer than the server's own: only a server that stands still, or a network that is gone, is so late. */
const ANSWER_TIMEOUT_MS = BOUNDS.statementMs + 5_000;
const RETRY = { firstMs: 50, longestMs: 1_000 };
const FULL_PAUSE_MS = 50;
const TOO_MANY = '53300';

interface Outage {
  problem: string;
  readonly over: Promise<void>;
}

/** Bounds of the session, and what says whether the server may be written to: one round trip for each new connection. */
const BEGIN_SESSION = [
  `set statement_timeout = ${BOUNDS.statementMs}`,
  `set lock_timeout = ${BOUNDS.lockMs}`,
  `set idle_in_transaction_session_timeout = ${BOUNDS.idleMs}`,
  "select current_setting('transaction_read_only') = 'on' as only_reads",
].join('; ');

const ABOUT = "select current_setting('server_version') as version, current_setting('server_encoding') as encoding";

/**
 * The connections to a PostgreSQL that may go and come back. While it is away one look-out asks for it, and who needs a connection waits
 * for that; behind an outage only new connections are used, since an old one may lead to a server that is no primary any more.
 */
export class Connections {
  readonly #pool: Pool;
  readonly #options: PostgresOptions;
  /** The outages before a connection was made. */
  readonly #ages = new WeakMap<PoolClient, number>();
  #age = 0;
  #outage: Outage | null = null;
  #isClosed = false;

  private constructor(pool: Pool, options: PostgresOptions) {
    this.#pool = pool;
    this.#options = options;
    pool.on('error', error => this.isAway(error));
    // One that is in use tells its error to the query too.
    pool.on('connect', client => void client.on('error', () => undefined));
  }

  /** `pg` is loaded on the first use. Nothing is connected yet. */
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

  /** Why nothing can be read or written now; null while all is well. */
  problem(): string | null {
    return this.#outage === null ? null : `the database cannot be reached: ${this.#outage.problem}`;
  }

  /** A connection, to be given back with `release`. Fails with `unavailable` when there is none until `deadlineMs`. */
  async take(deadlineMs: number): Promise<PoolClient> {
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

  /** Gives it back, or ends it when `error` says that it is of no use any more; whether that is so. */
  release(client: PoolClient, error?: unknown): boolean {
    const isBroken = error !== undefined && this.isAway(error);
    client.release(isBroken);
    return isBroken;
  }

  /** Whether `error` says that the server is away; then it is looked for. */
  isAway(error: unknown): boolean {
    if (!isAway(error)) return false;
    if (this.#outage === null && !this.#isClosed) {
      this.#age += 1;
      this.#outage = { problem: reasonOf(error), over: this.#lookOut() };
    }
    return true;
  }

  /** Version and encoding that the server reports: `15.6 (Debian 15.6-0+deb12u1)`, `UTF8`. */
  async about(deadlineMs: number): Promise<{ readonly version: string; readonly encoding: string }> {
    const client = await this.take(deadlineMs);
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

  /** Null: not this time, try again. */
  async #connect(leftMs: number): Promise<PoolClient | null> {
    const coming = this.#pool.connect();
    try {
      const client = await within(coming, leftMs, () => this.#busy());
      return this.#isOld(client) ? null : client;
    } catch (error) {
      // Too late for us: it belongs to the next.
      coming.then(
        client => client.release(),
        () => undefined,
      );
      if ((error as { code?: unknown }).code === TOO_MANY && this.#pool.totalCount > 0) {
        await pause(FULL_PAUSE_MS);
        return null;
      }
      // The pool says so too when all are in use.
      const isBusy = this.#pool.totalCount >= this.#options.poolSize && this.#pool.idleCount === 0;
      if (isBusy || !isConnectProblem(error)) throw isBusy ? this.#busy() : error;
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

  /** Resolves once the server is there again. Never rejects. */
  async #lookOut(): Promise<void> {
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

/** Where a URL leads, without who asks and with what password. */
export function placeOf(url: string): string {
  try {
    const { host, pathname, searchParams } = new URL(url);
    return `${host || (searchParams.get('host') ?? 'localhost')}${pathname}`;
  } catch {
    return 'the database of storage.url';
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
    // As `pg` reads values: one function for each type.
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

/** The server refuses the connection (a password, a missing database), so it counts as unreachable. */
function withoutState(error: Error): Error {
  return new Error(error.message, { cause: error });
}

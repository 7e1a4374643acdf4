import { Kysely, sql } from 'kysely';
import type { Database, Tables, WriteTransaction } from '../database.ts';
import { withOrigin } from '../queries/feed.ts';
import { WakeUps } from '../wake-ups.ts';
import type { DurableWrites } from '../writes/durable.ts';
import { Connections } from './postgres-connections.ts';
import { pooledDialect } from './postgres-dialect.ts';
import { PostgresWrites } from './postgres-writes.ts';

export interface ClusterDatabaseOptions {
  /** URL of a PostgreSQL with all migrations applied. */
  readonly url: string;
  /** URL for `listen` and `notify`, when `url` leads to a transaction pooler. */
  readonly listenUrl?: string | null;
  /** The node that publishes. */
  readonly nodeId: string;
  /** Longest wait of a query for a connection, and then again for its answer. */
  readonly queryTimeoutMs: number;
  /** False: this node sends and receives no notifications, and only polls. */
  readonly hasWakeUps: boolean;
}

/** Enough that heartbeats, reads and lease changes do not wait for each other. */
const POOL_SIZE = 3;

/**
 * Separate connections of the cluster: a heartbeat must not wait for other writes. All queries here are
 * short.
 */
export class ClusterDatabase {
  readonly database: Database;
  readonly nodeId: string;
  readonly #connections: Connections;
  readonly #writes: DurableWrites;
  readonly #lockTimeoutMs: number;
  readonly #wakeUps: WakeUps | null;

  private constructor(connections: Connections, options: ClusterDatabaseOptions) {
    const { url, nodeId, queryTimeoutMs, hasWakeUps } = options;
    const checkWrite = () => undefined;
    this.nodeId = nodeId;
    this.#connections = connections;
    this.#lockTimeoutMs = Math.ceil(queryTimeoutMs / 2);
    this.database = new Kysely<Tables>({ dialect: pooledDialect(connections, checkWrite) });
    this.#wakeUps = hasWakeUps
      ? new WakeUps({ url: options.listenUrl ?? url, origin: nodeId, timeoutMs: queryTimeoutMs })
      : null;
    this.#writes = this.publishing(new PostgresWrites(connections, POOL_SIZE, checkWrite));
  }

  /** Creates the object without connecting. */
  static async open(options: ClusterDatabaseOptions): Promise<ClusterDatabase> {
    const { url, queryTimeoutMs } = options;
    const bounds = { url, poolSize: POOL_SIZE, waitMs: queryTimeoutMs, answerTimeoutMs: queryTimeoutMs };
    return new ClusterDatabase(await Connections.open(bounds), options);
  }

  /** Calls `onWake` from now on when another node may have published. */
  listen(onWake: () => void): void {
    this.#wakeUps?.start(onWake);
  }

  /** Runs one short transaction. Publishes its changes under this node's id. */
  transact<R>(work: (transaction: WriteTransaction) => Promise<R>): Promise<R> {
    return this.#writes.write(async transaction => {
      // Half the query timeout, so that the server gives up a lock before the client gives up the connection.
      await sql`select set_config('lock_timeout', ${String(this.#lockTimeoutMs)}, true)`.execute(transaction);
      return await work(transaction);
    });
  }

  /** Wraps `writes` so that operations may publish. Other nodes are notified after the commit. */
  publishing(writes: DurableWrites): DurableWrites {
    const { nodeId } = this;
    const wakeUps = this.#wakeUps;
    return {
      async write(operation, ...args) {
        let hasPublished = false;
        const note = () => {
          hasPublished = true;
        };
        try {
          return await writes.write(
            (transaction, ...rest) => withOrigin(transaction, nodeId, note, () => operation(transaction, ...rest)),
            ...args,
          );
        } finally {
          // Also after an error: the commit may have succeeded.
          if (hasPublished) wakeUps?.notify();
        }
      },
      problem: () => writes.problem(),
      close: () => writes.close(),
    };
  }

  async close(): Promise<void> {
    await this.#writes.close();
    await this.#wakeUps?.close();
    await this.database.destroy();
    await this.#connections.close();
  }
}

import { Kysely, sql } from 'kysely';
import type { Database, Tables, WriteTransaction } from './database.ts';
import type { DurableWrites } from './durable.ts';
import { withOrigin } from './feed.ts';
import { Connections } from './postgres-connections.ts';
import { pooledDialect } from './postgres-dialect.ts';
import { PostgresWrites } from './postgres-writes.ts';
import { WakeUps } from './wake-ups.ts';

export interface ClusterDatabaseOptions {
  /** Of a PostgreSQL whose tables are up to date. */
  readonly url: string;
  /** Where it listens and notifies, when `url` leads to a pooler of transactions. */
  readonly listenUrl?: string | null;
  /** The node that publishes. */
  readonly nodeId: string;
  /** How long a query waits for a connection, and then for its answer. */
  readonly queryTimeoutMs: number;
  /** False: nobody is woken and nobody wakes this node, so that only polling is left. */
  readonly hasWakeUps: boolean;
}

/** Heartbeats do not wait for those who read, and neither waits for those who take leases. */
const POOL_SIZE = 3;

/** Connections of the cluster's own: a heartbeat may not wait until others have ended what they write. Nothing here waits long. */
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

  /** Nothing is connected yet. */
  static async open(options: ClusterDatabaseOptions): Promise<ClusterDatabase> {
    const { url, queryTimeoutMs } = options;
    const bounds = { url, poolSize: POOL_SIZE, waitMs: queryTimeoutMs, answerTimeoutMs: queryTimeoutMs };
    return new ClusterDatabase(await Connections.open(bounds), options);
  }

  /** From now on `onWake` is called when another node may have published. */
  listen(onWake: () => void): void {
    this.#wakeUps?.start(onWake);
  }

  /** One short transaction. Its changes are published as this node's. */
  transact<R>(work: (transaction: WriteTransaction) => Promise<R>): Promise<R> {
    return this.#writes.write(async transaction => {
      // The server gives up before the connection is given up.
      await sql`select set_config('lock_timeout', ${String(this.#lockTimeoutMs)}, true)`.execute(transaction);
      return await work(transaction);
    });
  }

  /** `writes` whose operations may publish: the others are woken after the commit. */
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
          // Also when nobody knows whether it was committed.
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

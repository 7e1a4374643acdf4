import { type Kysely, PostgresAdapter, sql } from 'kysely';
import { internal } from '../../core/error.ts';
import type { Tables, WriteTransaction } from '../database.ts';
import { DATABASE_NOW_MS } from './nodes.ts';

export interface Change {
  readonly seq: number;
  readonly topic: string;
  readonly key: string | null;
  readonly origin: string;
}

/** The feed as a single query saw it. */
export interface FeedPage {
  /** The newest committed change. */
  readonly newest: number;
  /**
   * Id of the database process. A different value means that another server answers, which may lack recent
   * changes.
   */
  readonly server: string;
  /** The changes after the requested one, oldest first. */
  readonly changes: readonly Change[];
}

/** The publishing node of a transaction, and whether the transaction has published. */
interface Publishing {
  readonly origin: string;
  hasPublished: boolean;
}

const publishing = new WeakMap<object, Publishing>();

/**
 * Runs `operation` so that its changes are published under `origin`. Calls `onPublished` after `operation` if
 * it published, even if it failed: the commit is not decided yet.
 */
export async function withOrigin<R>(
  transaction: WriteTransaction,
  origin: string,
  onPublished: () => void,
  operation: () => Promise<R>,
): Promise<R> {
  const state = { origin, hasPublished: false };
  publishing.set(transaction, state);
  try {
    return await operation();
  } finally {
    if (state.hasPublished) onPublished();
  }
}

/**
 * Publishes a change to the other replicas at the commit. Must be the last query of an operation: until the
 * commit no other transaction can publish, so numbers are in commit order. Does nothing with the embedded
 * database.
 */
export async function publish(transaction: WriteTransaction, topic: string, key: string | null): Promise<void> {
  if (!(transaction.getExecutor().adapter instanceof PostgresAdapter)) return;
  const state = publishing.get(transaction);
  if (state !== undefined) state.hasPublished = true;
  // Without `withOrigin` the change has no origin: every replica handles it at its next poll.
  const origin = state?.origin ?? '';
  await sql`
    with next as (update feed_counter set seq = seq + 1 where id = 1 returning seq)
    insert into feed (seq, topic, key, origin, at_ms)
    select seq, ${topic}::text, ${key}::text, ${origin}::text, ${DATABASE_NOW_MS} from next
  `.execute(transaction);
}

const MAX_CHANGES = 1000;

/** Returns the changes after `after`, at most 1000, in one query and so from one snapshot. */
export async function readFeed(queries: Kysely<Tables>, after: number): Promise<FeedPage> {
  const { rows } = await sql<{
    newest: number;
    server: string;
    seq: number | null;
    topic: string;
    key: string | null;
    origin: string;
  }>`
    select counter.seq as newest, extract(epoch from pg_postmaster_start_time())::text as server,
      change.seq, change.topic, change.key, change.origin
    from feed_counter counter
    left join (
      select seq, topic, key, origin from feed where seq > ${after}::bigint order by seq limit ${sql.lit(MAX_CHANGES)}
    ) change on true
    order by change.seq
  `.execute(queries);
  const first = rows[0];
  if (first === undefined) throw internal('the counter of the feed is missing in the database');
  const changes = rows.filter(row => row.seq !== null);
  return {
    newest: Number(first.newest),
    server: first.server,
    changes: changes.map(({ seq, topic, key, origin }) => ({ seq: Number(seq), topic, key, origin })),
  };
}

/** Deletes older changes. A replica that has not read them by then reloads everything. */
export async function trimFeed(queries: Kysely<Tables>, olderThanMs: number): Promise<void> {
  await queries
    .deleteFrom('feed')
    .where('at_ms', '<', sql<number>`${DATABASE_NOW_MS} - ${sql.lit(olderThanMs)}`)
    .execute();
}

import { type Kysely, PostgresAdapter, sql } from 'kysely';
import { internal } from '../core/error.ts';
import type { Tables, WriteTransaction } from './database.ts';
import { DATABASE_NOW_MS } from './nodes.ts';

/** Row of `feed`: something changed that replicas keep in memory. */
export interface FeedTable {
  /** In the order of the commits, without gaps. */
  seq: number;
  topic: string;
  /** Null: anything of the topic. */
  key: string | null;
  /** The node that changed it. */
  origin: string;
  at_ms: number;
}

/** The one row of `feed_counter`. */
export interface FeedCounterTable {
  id: number;
  seq: number;
}

export interface Change {
  readonly seq: number;
  readonly topic: string;
  readonly key: string | null;
  readonly origin: string;
}

/** What is known of the feed in one moment. */
export interface FeedPage {
  /** The newest change that is committed. */
  readonly newest: number;
  /** Another value: another process of the database answers, which may know less than the one before. */
  readonly server: string;
  /** Those after the one that was asked for, the oldest first. */
  readonly changes: readonly Change[];
}

/** Who publishes in a transaction, and whether it did. */
interface Publishing {
  readonly origin: string;
  hasPublished: boolean;
}

const publishing = new WeakMap<object, Publishing>();

/**
 * Runs `operation` so that what it publishes is of this node. `onPublished` is called when it published, whether or not it succeeds: the
 * commit is not known yet.
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
 * Tells the other replicas with the commit that something changed. To be called last in an operation: from here to the commit nobody else
 * publishes, which makes the order of the numbers the order of the commits. With an embedded database nobody listens.
 */
export async function publish(transaction: WriteTransaction, topic: string, key: string | null): Promise<void> {
  if (!(transaction.getExecutor().adapter instanceof PostgresAdapter)) return;
  const state = publishing.get(transaction);
  if (state !== undefined) state.hasPublished = true;
  // Of nobody, when it does not go through the writes of a feed: then all hear of it, with their next poll.
  const origin = state?.origin ?? '';
  await sql`
    with next as (update feed_counter set seq = seq + 1 where id = 1 returning seq)
    insert into feed (seq, topic, key, origin, at_ms)
    select seq, ${topic}::text, ${key}::text, ${origin}::text, ${DATABASE_NOW_MS} from next
  `.execute(transaction);
}

const MAX_CHANGES = 1000;

/** One query, and so of one moment. */
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

/** Forgets changes that are older. A replica that has not read them so long reads everything anew. */
export async function trimFeed(queries: Kysely<Tables>, olderThanMs: number): Promise<void> {
  await queries
    .deleteFrom('feed')
    .where('at_ms', '<', sql<number>`${DATABASE_NOW_MS} - ${sql.lit(olderThanMs)}`)
    .execute();
}

/** Record of `feed`: a change of something that replicas keep in memory. */
export interface FeedTable {
  /** In commit order, without gaps. */
  seq: number;
  topic: string;
  /** Null: everything of the topic may have changed. */
  key: string | null;
  /** The node that made the change. */
  origin: string;
  at_ms: number;
}

/** The single record of `feed_counter`. */
export interface FeedCounterTable {
  id: number;
  seq: number;
}

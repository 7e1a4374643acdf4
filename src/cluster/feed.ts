import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../core/error.ts';
import type { Log } from '../lib/log.ts';
import type { ClusterDatabase } from '../storage/postgres/cluster-database.ts';
import { type FeedPage, readFeed } from '../storage/queries/feed.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { Feed, FeedListener } from './contract.ts';

const BETWEEN_MS = 5;

/**
 * Reads the changes of other replicas in the order of their commits, on each notification and at every poll.
 * The table is authoritative, so a lost notification only costs time. If changes are missing, all listeners
 * are notified that anything may have changed. The same happens when another PostgreSQL process answers,
 * which may have lost changes.
 */
export class NodeFeed implements Feed {
  readonly #database: ClusterDatabase;
  readonly #pollMs: number;
  readonly #log: Log;
  readonly #listeners = new Map<string, Set<FeedListener>>();
  #last = 0;
  #server = '';
  /** Start of the last read that returned all committed changes, monotonic milliseconds. */
  #knownMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | null = null;
  #isAsked = false;
  #isClosed = false;
  #problem: string | null = null;

  constructor(database: ClusterDatabase, { pollMs, log }: { readonly pollMs: number; readonly log: Log }) {
    this.#database = database;
    this.#pollMs = pollMs;
    this.#log = log;
  }

  subscribe(topic: string, listener: FeedListener): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }

  publishing(writes: DurableWrites): DurableWrites {
    return this.#database.publishing(writes);
  }

  behindMs(): number {
    return Math.max(0, performance.now() - this.#knownMs - this.#pollMs);
  }

  /** Begins to notify listeners of changes. Fails when the database does not answer. */
  async start(): Promise<void> {
    const startedMs = performance.now();
    const { newest, server } = await readFeed(this.#database.database, Number.MAX_SAFE_INTEGER);
    this.#last = newest;
    this.#server = server;
    this.#knownMs = startedMs;
    this.#database.listen(() => this.#read());
    this.#timer = setInterval(() => this.#read(), this.#pollMs).unref();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await this.#reading;
  }

  #read(): void {
    this.#isAsked = true;
    this.#reading ??= this.#readAll().finally(() => {
      this.#reading = null;
    });
  }

  async #readAll(): Promise<void> {
    for (let reads = 0; this.#isAsked && !this.#isClosed; reads++) {
      // Reads the changes of a burst together.
      if (reads > 0) await delay(BETWEEN_MS);
      this.#isAsked = false;
      const startedMs = performance.now();
      try {
        const page = await readFeed(this.#database.database, this.#last);
        this.#applyPage(page);
        if (this.#last === page.newest) this.#knownMs = startedMs;
        else this.#isAsked = true;
        if (this.#problem !== null) this.#log.info({}, 'changes of other replicas are readable again');
        this.#problem = null;
      } catch (error) {
        const problem = messageOf(error);
        if (this.#problem !== problem) this.#log.warn({ problem }, 'cannot read changes of other replicas; retrying');
        this.#problem = problem;
      }
    }
  }

  #applyPage({ newest, server, changes }: FeedPage): void {
    const first = changes[0]?.seq ?? newest + 1;
    const hasAll = newest >= this.#last && first === this.#last + 1;
    if (!hasAll || server !== this.#server) {
      this.#log.warn(
        { from: this.#last, to: newest },
        'changes of other replicas may be missing: everything is read anew',
      );
      this.#last = newest;
      this.#server = server;
      for (const topic of this.#listeners.keys()) this.#notify(topic, null);
      return;
    }
    for (const { seq, topic, key, origin } of changes) {
      this.#last = seq;
      if (origin !== this.#database.nodeId) this.#notify(topic, key);
    }
  }

  #notify(topic: string, key: string | null): void {
    for (const listener of this.#listeners.get(topic) ?? []) {
      try {
        listener(key);
      } catch (error) {
        this.#log.warn({ topic, problem: messageOf(error) }, 'cannot apply change of another replica');
      }
    }
  }
}

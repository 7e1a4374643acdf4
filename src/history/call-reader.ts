import { setImmediate as nextTurn } from 'node:timers/promises';
import { notFound } from '../core/error.ts';
import type { Database } from '../storage/database.ts';
import {
  type CallFacts,
  type CallFilter,
  type CallPlace,
  type CallRecord,
  findCall,
  lastCallSeq,
  listCalls,
  listRecordedCalls,
  searchCalls,
} from '../storage/queries/calls.ts';

export type { CallFacts, CallPlace } from '../storage/queries/calls.ts';

export interface CallQuery extends CallFilter {
  /** Text of the input, the output or the error. */
  readonly text?: string | undefined;
  readonly limit: number;
}

export interface CallPage {
  readonly calls: readonly CallFacts[];
  /** Null: this is the last page. */
  readonly next: CallPlace | null;
}

export interface FollowQuery extends Omit<CallFilter, 'after'> {
  /** Text of the input, the output or the error. */
  readonly text?: string | undefined;
  readonly limit: number;
  /** Position of the answer before; null: the end of the history. */
  readonly position: number | null;
}

export interface FollowedPage {
  readonly calls: readonly CallFacts[];
  /** Where the next page begins. Equal to the position of the query when the history has no later records. */
  readonly position: number;
}

/** Calls that one turn of the event loop searches: reads of SQLite run on the thread of the calls. */
const WINDOW = 500;
/** Time after which a search returns the page that it has. */
const SEARCH_MS = 120;

/** Reads the history of calls. */
export class CallReader {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Returns a page of calls, newest first. A page of a search may have fewer calls than `limit`, or none,
   * although more follow: a search reads for a bounded time.
   */
  async list({ text, limit, ...filter }: CallQuery): Promise<CallPage> {
    if (text !== undefined) return await this.#search(text, limit, filter);
    const calls = await listCalls(this.#database, filter, limit + 1);
    return pageOf(calls, limit, null);
  }

  /**
   * Returns calls that were recorded after a position, in the order of their records. A page may have no
   * calls although more follow: it covers a bounded number of records.
   */
  async follow({ text, limit, position, ...filter }: FollowQuery): Promise<FollowedPage> {
    const newest = await lastCallSeq(this.#database, filter.tenant);
    // A restored database may be older than the position.
    const after = position === null ? newest : Math.min(position, newest);
    const last = Math.min(newest, after + WINDOW);
    if (last === after) return { calls: [], position: after };
    const found = await listRecordedCalls(this.#database, filter, { after, last }, { text, limit: limit + 1 });
    const calls = found.slice(0, limit);
    return { calls, position: found.length > limit ? (calls[limit - 1] as { readonly seq: number }).seq : last };
  }

  /** Returns a call. Fails with `not_found`, also for a call of another tenant. */
  async get(tenant: string, id: string): Promise<CallRecord> {
    const call = await findCall(this.#database, tenant, id);
    if (call === undefined) throw notFound(`call not found: ${id}`);
    return call;
  }

  async #search(text: string, limit: number, filter: CallFilter): Promise<CallPage> {
    const untilMs = performance.now() + SEARCH_MS;
    const found: CallFacts[] = [];
    let after = filter.after;
    for (;;) {
      const { calls, last } = await searchCalls(this.#database, { ...filter, after }, text, WINDOW);
      found.push(...calls);
      if (found.length > limit || last === null || performance.now() > untilMs) return pageOf(found, limit, last);
      after = last;
      await nextTurn();
    }
  }
}

/** `rest`: where the next page begins if this one has all of `calls`. */
function pageOf(calls: readonly CallFacts[], limit: number, rest: CallPlace | null): CallPage {
  if (calls.length <= limit) return { calls, next: rest };
  const shown = calls.slice(0, limit);
  const { id, started_at_ms: startedAtMs } = shown[limit - 1] as CallFacts;
  return { calls: shown, next: { id, startedAtMs } };
}

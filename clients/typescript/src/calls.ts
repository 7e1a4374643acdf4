import { setTimeout as delay } from 'node:timers/promises';
import type { Connection, RequestOptions } from './connection.ts';
import type { CallDetails, CallRecord, CallRecording, Operations } from './generated.ts';
import { retryAfterMs } from './retry.ts';

/**
 * Selects calls. `agent`: the id of an agent. `function`: `<service>@<name>` or a URN. `after`, `before`: a
 * moment (RFC 3339), or a duration before now such as `10m`. `limit`: calls of one page.
 */
export type CallQuery = Omit<Operations['listCalls']['query'], 'cursor' | 'follow'>;

/** Selects calls to follow, like `CallQuery`. */
export type FollowedCallQuery = Omit<CallQuery, 'after' | 'before' | 'limit'>;

/** An agent by its id, or a function by `<service>@<name>` or a URN. */
export type RecordedTarget = { readonly agent: string } | { readonly function: string };

/** The service writes records twice a second. */
const POLL_MS = 500;
/** Time without an answer after which `follow` fails. */
const OUTAGE_MS = 300_000;

/** Reads the history of calls: failed and slow ones, and a sample of the others. */
export class Calls {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Yields the calls that match every filter, newest first. Requests each page when it is needed. A call
   * appears within a second of its end. Inputs and outputs are in the result of `get`.
   */
  async *list({
    signal,
    timeoutMs,
    traceId,
    ...filter
  }: RequestOptions & CallQuery = {}): AsyncGenerator<CallRecord, void, undefined> {
    let cursor: string | undefined;
    do {
      const query = { ...filter, cursor };
      const page = await this.#connection.call('listCalls', { signal, timeoutMs, traceId, query });
      yield* page.calls;
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  }

  /**
   * Yields new calls that match every filter, in the order of their records, until `signal` aborts.
   * Begins at the first `next`. Continues without loss after an outage of at most 5 minutes.
   */
  async *follow({
    signal,
    timeoutMs,
    traceId,
    ...filter
  }: RequestOptions & FollowedCallQuery = {}): AsyncGenerator<CallRecord, void, undefined> {
    const options = { signal, timeoutMs, traceId };
    let follow = 'now';
    let answeredMs = performance.now();
    for (;;) {
      let waitMs: number | null = POLL_MS;
      try {
        const page = await this.#connection.call('listCalls', { ...options, query: { ...filter, follow } });
        answeredMs = performance.now();
        yield* page.calls;
        const next = page.next_cursor ?? follow;
        if (next !== follow) waitMs = 0;
        follow = next;
      } catch (error) {
        signal?.throwIfAborted();
        waitMs = retryAfterMs(error, 1, true);
        const isOver = performance.now() - answeredMs > OUTAGE_MS;
        if (follow === 'now' || waitMs === null || isOver) throw error;
      }
      if (waitMs > 0)
        await delay(waitMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted());
    }
  }

  /**
   * Keeps all calls of an agent or function for `seconds` from now on (default: 3600). The records have up to
   * 1 MiB of each input and output. A second request changes the end.
   */
  async record({
    signal,
    timeoutMs,
    traceId,
    ...body
  }: RequestOptions & RecordedTarget & { readonly seconds?: number }): Promise<CallRecording> {
    const { recording } = await this.#connection.call('putCallRecording', { signal, timeoutMs, traceId, body });
    return recording;
  }

  /** Ends a recording. Fails with status 404 if there is none. */
  async stopRecording({ signal, timeoutMs, traceId, ...query }: RequestOptions & RecordedTarget): Promise<void> {
    await this.#connection.call('deleteCallRecording', { signal, timeoutMs, traceId, query });
  }

  /** Returns the recordings that have not ended. */
  async recordings(options: RequestOptions = {}): Promise<readonly CallRecording[]> {
    return (await this.#connection.call('listCallRecordings', options)).recordings;
  }

  /** Returns a call with its input and output. Fails with status 404 if it is not recorded. */
  async get(id: string, options: RequestOptions = {}): Promise<CallDetails> {
    const { call } = await this.#connection.call('getCall', { ...options, params: { id } });
    return call;
  }
}

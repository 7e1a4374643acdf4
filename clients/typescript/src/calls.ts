import type { Connection, RequestOptions } from './connection.ts';
import type { CallDetails, CallRecord, Operations } from './generated.ts';

/**
 * Selects calls. `agent`: the id of an agent. `function`: `<service>@<name>` or a URN. `after`, `before`: a
 * moment (RFC 3339), or a duration before now such as `10m`. `limit`: calls of one page.
 */
export type CallQuery = Omit<Operations['listCalls']['query'], 'cursor'>;

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

  /** Returns a call with its input and output. Fails with status 404 if it is not recorded. */
  async get(id: string, options: RequestOptions = {}): Promise<CallDetails> {
    const { call } = await this.#connection.call('getCall', { ...options, params: { id } });
    return call;
  }
}

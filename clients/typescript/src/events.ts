import type { Connection, RequestOptions } from './connection.ts';
import { serverEvents } from './server-events.ts';

/** docs/dashboard.md has the kinds, and what each tells. */
export interface RookeryEvent {
  readonly id: string;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface EventOptions extends RequestOptions {
  /** Only these. */
  readonly types?: readonly string[];
  /** First those after the event with this id. */
  readonly after?: string;
  /** First so many of those before. */
  readonly recent?: number;
}

export class Events {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** What happens as it happens, until `signal` aborts or the connection ends: go on with `after`. */
  async *follow({ types, after, recent, ...options }: EventOptions = {}): AsyncGenerator<RookeryEvent> {
    const answer = await this.#connection.stream('followEvents', {
      ...options,
      query: { types: types?.join(','), recent },
      headers: { accept: 'text/event-stream', 'last-event-id': after },
    });
    for await (const { id, type, data } of serverEvents(answer)) yield { id, type, data: JSON.parse(data) };
  }
}

import type { Connection, RequestOptions } from './connection.ts';
import { serverEvents } from './server-events.ts';

/** An event of the service. docs/reference/events.md lists the types and the fields of their data. */
export interface RookeryEvent {
  readonly id: string;
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface EventOptions extends RequestOptions {
  /** Types of events to receive. Absent: all types. */
  readonly types?: readonly string[];
  /** Only events of this agent: its `instance_id`. At most one of `agent`, `function` and `job`. */
  readonly agent?: string;
  /** Only events of this function: `<service>@<name>` or its URN. */
  readonly function?: string;
  /** Only events of this job. */
  readonly job?: string;
  /**
   * Id of the last event received: the stream begins with the events after it. If the service no longer has
   * them, the first event is `reset`.
   */
  readonly after?: string;
  /** Number of past events to receive first, at most 4096; ignored with `after`. Default: 0. */
  readonly recent?: number;
}

/** Reads events of the service. */
export class Events {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Yields events as they happen, until `signal` aborts or the service ends the stream. A broken connection
   * fails with `RookeryError`. To resume, pass the id of the last event as `after`.
   */
  async *follow(options: EventOptions = {}): AsyncGenerator<RookeryEvent> {
    const { types, agent, function: functionName, job, after, recent, ...rest } = options;
    const answer = await this.#connection.stream('followEvents', {
      ...rest,
      query: { types: types?.join(','), agent, function: functionName, job, recent },
      headers: { accept: 'text/event-stream', 'last-event-id': after },
    });
    for await (const { id, type, data } of serverEvents(answer)) yield { id, type, data: JSON.parse(data) };
  }
}

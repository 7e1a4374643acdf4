import type { IncomingMessage } from 'node:http';
import { serverEvents } from '../../../clients/typescript/src/server-events.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { Client } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';

/**
 * Interval between polls without an event. Events cover only the replica that the command queries, and some
 * changes have no event.
 */
export const RELOOK_MS = 5000;

/**
 * Follows events of the service, for callers that read the state again after each event. Start it before the
 * first read, so that no change is missed.
 */
export class Changes implements Disposable {
  readonly #answer: IncomingMessage;
  readonly #stopListening: () => void;
  #isNews = false;
  #failure: CliError | null = null;
  #wake: () => void = () => {};

  private constructor(io: Io, answer: IncomingMessage) {
    this.#answer = answer;
    this.#stopListening = onAbort(io.signal, () => this.#wake());
    void this.#read();
  }

  static async follow(io: Io, client: Client, types: readonly string[]): Promise<Changes> {
    const headers = { accept: 'text/event-stream' };
    const path = `/api/events?${new URLSearchParams({ types: types.join(',') })}`;
    return new Changes(io, await client.stream('GET', path, { headers }));
  }

  /** Resolves after an event since the last call, after `ms`, or when the command is interrupted. */
  async next(ms: number): Promise<void> {
    if (this.#failure !== null) throw this.#failure;
    if (!this.#isNews) {
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#isNews = false;
    if (this.#failure !== null) throw this.#failure;
  }

  [Symbol.dispose](): void {
    this.#stopListening();
    this.#answer.destroy();
  }

  async #read(): Promise<void> {
    let why = 'it has ended the stream of events';
    try {
      for await (const { type } of serverEvents(this.#answer)) {
        if (type === 'hello') continue;
        this.#isNews = true;
        this.#wake();
      }
    } catch (error) {
      why = (error as Error).message;
    }
    this.#failure = new CliError(`The connection to the service broke (${why}).`, EXIT.unreachable);
    this.#wake();
  }
}

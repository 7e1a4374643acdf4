import type { Writable } from 'node:stream';
import {
  type EventLog,
  type EventPosition,
  formatId,
  type LoggedEvent,
  laterOf,
  parseId,
  type SeenEvents,
} from './event-log.ts';

/** Text format of events for one kind of readers. */
export interface EventFormat {
  event(event: LoggedEvent, id: string): string;
  /** Returns the text that marks the beginning of the events. `reset`: earlier events are missing. */
  marker(type: 'hello' | 'reset', id: string): string;
  /** Text that only shows that the connection lives. */
  readonly heartbeat: string;
}

export interface EventReaderOptions {
  readonly log: EventLog;
  readonly to: Writable;
  readonly isWanted: (event: LoggedEvent) => boolean;
  readonly format: EventFormat;
}

/** Interval of heartbeats. */
export const HEARTBEAT_MS = 15_000;
/** Bytes per write, approximately. */
const TURN_BYTES = 64 * 1024;

/**
 * Writes the events of the log to one connection. A reader is a position in the log and keeps no events. It
 * stops while the connection's buffer is full. If the log drops its position meanwhile, the reader gets a
 * `reset`.
 */
export class EventReader {
  readonly #options: EventReaderOptions;
  readonly #heartbeat: NodeJS.Timeout;
  readonly #endEvents: () => void;
  #place: EventPosition;
  /**
   * Events that the reader had seen before it resumed, until the log has passed them all. Null: it has seen
   * exactly the events before its position.
   */
  #seen: SeenEvents | null = null;
  #isFull = false;
  /** Position at which the stream ends. Null: it continues with new events. */
  #last: EventPosition | null = null;

  constructor(options: EventReaderOptions) {
    this.#options = options;
    const { log } = options;
    this.#place = log.end;
    this.#heartbeat = setInterval(() => this.offer(options.format.heartbeat), HEARTBEAT_MS).unref();
    this.#endEvents = log.onEvents(() => this.#writePending());
  }

  /** Begins with the `recent` newest wanted events, and ends behind them unless `isFollowed`. */
  startWithRecent(recent: number, isFollowed = true): void {
    const { log, format, isWanted } = this.#options;
    if (!isFollowed) this.#last = log.end;
    for (let left = recent; left > 0; ) {
      const event = log.at(this.#place - 1);
      if (event === undefined) break;
      this.#place -= 1;
      if (isWanted(event)) left -= 1;
    }
    this.#write(format.marker('hello', log.idBefore(this.#place)));
    this.#writePending();
  }

  /** Begins after the events in `seen`. The log must contain all later ones. */
  resume(seen: SeenEvents): void {
    const { log, format } = this.#options;
    this.#place = log.start;
    this.#seen = seen;
    this.#write(format.marker('hello', formatId(seen)));
    this.#writePending();
  }

  /** Begins at the end of the log, because earlier events are missing. */
  startAtEnd(): void {
    const { log, format } = this.#options;
    this.#write(format.marker('reset', log.idBefore(this.#place)));
  }

  /** Writes a text unless the connection's buffer is full. The caller offers a newer one soon. */
  offer(text: string): void {
    if (!this.#isFull) this.#write(text);
  }

  end(): void {
    clearInterval(this.#heartbeat);
    this.#endEvents();
    const { to } = this.#options;
    if (!to.destroyed) to.end();
  }

  #writePending(): void {
    const { log, format } = this.#options;
    let text = '';
    while (!this.#isFull && this.#place < (this.#last ?? log.end)) {
      const event = log.at(this.#place);
      if (event === undefined) {
        this.#place = log.end;
        this.#seen = null;
        text = format.marker('reset', log.idBefore(this.#place));
        break;
      }
      this.#place += 1;
      text += this.#textOf(event);
      if (text.length < TURN_BYTES) continue;
      this.#write(text);
      text = '';
    }
    if (text !== '') this.#write(text);
    if (this.#seen !== null && this.#place === log.end && this.#isPast(this.#seen)) this.#seen = null;
    if (this.#last !== null && this.#place >= this.#last) this.end();
  }

  #textOf(event: LoggedEvent): string {
    const { isWanted, format } = this.#options;
    const seen = this.#seen;
    if (seen === null) return isWanted(event) ? format.event(event, event.id) : '';
    if (event.number <= (seen.get(event.run) ?? 0) || !isWanted(event)) return '';
    // In the order of this replica, the event may precede events that were seen already.
    return format.event(event, formatId(laterOf(seen, parseId(event.id) as SeenEvents)));
  }

  #isPast(seen: SeenEvents): boolean {
    return [...seen].every(([run, number]) => number <= this.#options.log.lastOf(run));
  }

  #write(text: string): void {
    const { to } = this.#options;
    if (to.destroyed || to.writableEnded) return;
    if (to.write(text) || this.#isFull) return;
    this.#isFull = true;
    to.once('drain', () => {
      this.#isFull = false;
      this.#writePending();
    });
  }
}

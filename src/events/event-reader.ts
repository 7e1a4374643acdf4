import type { Writable } from 'node:stream';
import { formatId, laterOf, parseId, type Seen } from './event-id.ts';
import type { EventLog, LoggedEvent, Place } from './event-log.ts';

/** How events are written for one kind of readers. */
export interface EventFormat {
  event(event: LoggedEvent, id: string): string;
  /** From here on everything is told; `reset`: something before it is missing. */
  marker(type: 'hello' | 'reset', id: string): string;
  /** Says nothing but that the connection lives. */
  readonly heartbeat: string;
}

export interface EventReaderOptions {
  readonly log: EventLog;
  readonly to: Writable;
  readonly isWanted: (event: LoggedEvent) => boolean;
  readonly format: EventFormat;
}

/** How often a reader hears something when nothing happens. */
export const HEARTBEAT_MS = 15_000;
/** Written in one turn; others have theirs between. */
const TURN_BYTES = 64 * 1024;

/**
 * One reader: a place in the log. Nothing waits for it here but what its connection holds: while that takes no more, it stays where it is, and
 * when the log has gone past it, it is told to read everything anew.
 */
export class EventReader {
  readonly #options: EventReaderOptions;
  readonly #heartbeat: NodeJS.Timeout;
  readonly #endEvents: () => void;
  #place: Place;
  /** What it had seen before, until the log has gone past that; null: it has seen what was before its place. */
  #seen: Seen | null = null;
  #isFull = false;

  constructor(options: EventReaderOptions) {
    this.#options = options;
    const { log } = options;
    this.#place = log.end;
    this.#heartbeat = setInterval(() => this.offer(options.format.heartbeat), HEARTBEAT_MS).unref();
    this.#endEvents = log.onEvents(() => this.#goOn());
  }

  /** With so many of the newest wanted events first. */
  begin(recent: number): void {
    const { log, format, isWanted } = this.#options;
    for (let left = recent; left > 0; ) {
      const event = log.at(this.#place - 1);
      if (event === undefined) break;
      this.#place -= 1;
      if (isWanted(event)) left -= 1;
    }
    this.#write(format.marker('hello', log.idBefore(this.#place)));
    this.#goOn();
  }

  /** Behind what has been seen; all of that has to be in the log. */
  resume(seen: Seen): void {
    const { log, format } = this.#options;
    this.#place = log.start;
    this.#seen = seen;
    this.#write(format.marker('hello', formatId(seen)));
    this.#goOn();
  }

  /** From now on, something before it being missing. */
  beginAnew(): void {
    const { log, format } = this.#options;
    this.#write(format.marker('reset', log.idBefore(this.#place)));
  }

  /** Written unless something waits for the connection already: a new one comes soon. */
  offer(text: string): void {
    if (!this.#isFull) this.#write(text);
  }

  end(): void {
    clearInterval(this.#heartbeat);
    this.#endEvents();
    const { to } = this.#options;
    if (!to.destroyed) to.end();
  }

  #goOn(): void {
    const { log, format } = this.#options;
    let text = '';
    while (!this.#isFull && this.#place < log.end) {
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
  }

  #textOf(event: LoggedEvent): string {
    const { isWanted, format } = this.#options;
    const seen = this.#seen;
    if (seen === null) return isWanted(event) ? format.event(event, event.id) : '';
    if (event.number <= (seen.get(event.run) ?? 0) || !isWanted(event)) return '';
    // In the order of this replica it may be before some that were seen.
    return format.event(event, formatId(laterOf(seen, parseId(event.id) as Seen)));
  }

  #isPast(seen: Seen): boolean {
    return [...seen].every(([run, number]) => number <= this.#options.log.lastOf(run));
  }

  #write(text: string): void {
    const { to } = this.#options;
    if (to.destroyed || to.writableEnded) return;
    if (to.write(text) || this.#isFull) return;
    this.#isFull = true;
    to.once('drain', () => {
      this.#isFull = false;
      this.#goOn();
    });
  }
}

import { randomBytes } from 'node:crypto';
import { type EventSubject, type EventType, subjectOf, subjectOfData } from '../core/event.ts';
import { LIMITS } from '../core/limits.ts';

/** Event as one replica sends it to another. */
export interface SentEvent {
  /** Tenant of the event; `''` for a `reset`, which concerns all tenants. */
  readonly tenant: string;
  /** `reset`: readers must read the displayed state again. */
  readonly type: EventType | 'reset';
  /** JSON text. */
  readonly data: string;
}

/** Event as the log keeps it for its readers. */
export interface LoggedEvent extends SentEvent {
  /** Run of the replica on which the event happened, and its number in that run. */
  readonly run: string;
  readonly number: number;
  /** Last known event of each replica at this event (`event-id.ts`). */
  readonly id: string;
  /** True if the event is not sent to other replicas. */
  readonly isLocal: boolean;
  readonly about: EventSubject;
}

/** Position in the log: the next event that a reader has not had. */
export type EventPosition = number;

/** Known events of a replica's run. */
interface Origin {
  last: number;
  /** Number after which all events are in the log. */
  from: number;
  /** Number of own events when the run began. */
  readonly since: number;
}

/** Maximum number of ended runs that are remembered, so that readers can resume with ids of them. */
const MAX_ENDED = 32;

/**
 * Keeps the newest events of this process and of the other replicas in a ring of fixed size. All tenants
 * share the ring. A reader is only a position in it. An event is serialized once for all readers. Events are
 * not stored; a client that needs the current state must request it.
 */
export class EventLog {
  /** Id of this run; a new one with each start. */
  readonly run = randomBytes(4).toString('hex');
  readonly #node: string | undefined;
  readonly #ring: (LoggedEvent | undefined)[];
  readonly #now: () => number;
  readonly #readers = new Set<() => void>();
  readonly #own: Origin = { last: 0, from: 0, since: 0 };
  readonly #origins = new Map<string, Origin>([[this.run, this.#own]]);
  /** Ended runs in the order of their ends. */
  readonly #ended = new Set<string>();
  #next: EventPosition = 1;
  #isWaking = false;

  /** Creates an empty log. `node` is the replica's name, which its events contain. */
  constructor(options: { readonly size?: number; readonly now?: () => number; readonly node?: string } = {}) {
    this.#ring = new Array<LoggedEvent | undefined>(options.size ?? LIMITS.keptEvents);
    this.#now = options.now ?? Date.now;
    this.#node = options.node;
  }

  /** Adds an event of this replica. */
  add(tenant: string, type: EventType, fields: Readonly<Record<string, unknown>>): void {
    const at = new Date(this.#now()).toISOString();
    const data = JSON.stringify({ type, at, node: this.#node, ...fields });
    this.#addOwn({ tenant, type, data }, { isLocal: false, about: subjectOf(fields) });
  }

  /**
   * Makes every reader read the displayed state again. Includes the readers of other replicas unless
   * `isLocal`.
   */
  reset(isLocal: boolean): void {
    this.#addOwn({ tenant: '', type: 'reset', data: RESET }, { isLocal, about: {} });
  }

  /**
   * Begins or resumes a run of another replica, whose events after `from` follow. If events before them are
   * missing, readers get a `reset`.
   */
  startRun(run: string, from: number): void {
    const origin = this.#origins.get(run);
    this.#ended.delete(run);
    if (from > (origin?.last ?? 0)) this.reset(true);
    if (origin === undefined) this.#origins.set(run, { last: from, from, since: this.#own.last });
    else if (from > origin.last) {
      origin.last = from;
      origin.from = from;
    }
  }

  /** Adds an event of a run that has begun. A known event changes nothing. */
  addOfRun(run: string, number: number, sent: SentEvent): void {
    const origin = this.#origins.get(run);
    if (origin === undefined || number <= origin.last) return;
    this.#put(origin, { ...sent, run, number, isLocal: false, about: subjectOfData(sent.data) });
  }

  /**
   * Marks a run as ended, because its replica has died. Its last events may be missing, so readers get a
   * `reset`.
   */
  lost(run: string): void {
    if (!this.#origins.has(run)) return;
    this.#ended.add(run);
    if (this.#ended.size > MAX_ENDED) this.#forget([...this.#ended][0] as string);
    this.reset(true);
  }

  /** Position of the oldest event that is kept. */
  get start(): EventPosition {
    return Math.max(1, this.#next - this.#ring.length);
  }

  /** Position behind the newest event. */
  get end(): EventPosition {
    return this.#next;
  }

  /** Returns the number of the last known event of a run. */
  lastOf(run: string): number {
    return this.#origins.get(run)?.last ?? 0;
  }

  /** Number after which all own events are kept. */
  get keptFrom(): number {
    return this.#own.from;
  }

  /** Returns the id of the events before this position. */
  idBefore(place: EventPosition): string {
    const event = this.at(place);
    if (event === undefined) return this.#id();
    const seen = parseId(event.id) as Map<string, number>;
    return formatId(seen.set(event.run, event.number - 1));
  }

  /**
   * Returns the events that a reader with this id has seen. Null when later events are not all in the log.
   */
  seenBy(id: string): SeenEvents | null {
    const seen = parseId(id);
    if (seen === null || (seen.get(this.run) ?? 0) > this.#own.last) return null;
    for (const run of seen.keys()) if (!this.#origins.has(run)) return null;
    for (const [run, { from }] of this.#origins) if ((seen.get(run) ?? 0) < from) return null;
    return seen;
  }

  /** Returns the event at a position before the end; undefined when it is not kept any more. */
  at(place: EventPosition): LoggedEvent | undefined {
    return place < this.start || place >= this.#next ? undefined : this.#ring[place % this.#ring.length];
  }

  /** Calls `wake` once for all events of a turn of the event loop. The returned function unsubscribes. */
  onEvents(wake: () => void): () => void {
    this.#readers.add(wake);
    return () => void this.#readers.delete(wake);
  }

  #addOwn(sent: SentEvent, more: Pick<LoggedEvent, 'isLocal' | 'about'>): void {
    this.#put(this.#own, { ...sent, ...more, run: this.run, number: this.#own.last + 1 });
  }

  #put(origin: Origin, event: Omit<LoggedEvent, 'id'>): void {
    const { tenant, type, data, run, number, isLocal, about } = event;
    origin.last = number;
    const at = this.#next % this.#ring.length;
    const dropped = this.#ring[at];
    const from = dropped && this.#origins.get(dropped.run);
    if (dropped && from) from.from = Math.max(from.from, dropped.number);
    this.#ring[at] = { tenant, type, data, run, number, isLocal, about, id: this.#id() };
    this.#next += 1;
    this.#wake();
  }

  #id(): string {
    let text = '';
    for (const [run, { last }] of this.#origins) text += `${text === '' ? '' : '.'}${run}-${last}`;
    return text;
  }

  /**
   * Drops a run. Ids from before the beginning of the run become invalid, because its events after them are
   * unknown.
   */
  #forget(run: string): void {
    const since = this.#origins.get(run)?.since ?? 0;
    this.#own.from = Math.max(this.#own.from, since);
    this.#origins.delete(run);
    this.#ended.delete(run);
  }

  #wake(): void {
    if (this.#isWaking || this.#readers.size === 0) return;
    this.#isWaking = true;
    setImmediate(() => {
      this.#isWaking = false;
      for (const wake of [...this.#readers]) wake();
    });
  }
}

const RESET = '{"type":"reset"}';

/**
 * Id of an event: the number of the last known event of each replica's run. The text is `<run>-<number>` for
 * each, with points between. Replicas get each other's events in different orders; such an id has the same
 * meaning on all of them.
 */

/** Number of the last event that was seen, for each run of a replica. */
export type SeenEvents = ReadonlyMap<string, number>;

const PART = /^([0-9a-f]{8})-(\d{1,15})$/;
/** Limit far above the ids of all remembered runs. */
const MAX_CHARS = 8192;

export function formatId(seen: SeenEvents): string {
  let text = '';
  for (const [run, number] of seen) text += `${text === '' ? '' : '.'}${run}-${number}`;
  return text;
}

/** Parses an id. Returns null for any other text. */
export function parseId(text: string): Map<string, number> | null {
  const seen = new Map<string, number>();
  if (text.length > MAX_CHARS) return null;
  for (const part of text.split('.')) {
    const match = PART.exec(part);
    if (match === null) return null;
    seen.set(match[1] as string, Number(match[2]));
  }
  return seen;
}

/** Returns the union of two sets of seen events. */
export function laterOf(one: SeenEvents, other: SeenEvents): Map<string, number> {
  const seen = new Map(one);
  for (const [run, number] of other) seen.set(run, Math.max(number, seen.get(run) ?? 0));
  return seen;
}

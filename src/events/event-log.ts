import { randomBytes } from 'node:crypto';
import { LIMITS } from '../core/limits.ts';
import { formatId, parseId, type Seen } from './event-id.ts';

/** The kinds of events, as `event:` of the stream says them. */
export const EVENT_TYPES = ['created', 'ready', 'failed', 'restarting', 'stopping', 'ended', 'scaled', 'job'] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** What one replica tells another of an event. */
export interface ToldEvent {
  /** Whose it is; `''` of a `reset`: everybody's. */
  readonly tenant: string;
  /** `reset`: what is shown has to be read anew. */
  readonly type: EventType | 'reset';
  /** JSON. */
  readonly data: string;
}

/** One event as it waits for its readers. */
export interface LoggedEvent extends ToldEvent {
  /** On which run of which replica it happened, and which of its events it is. */
  readonly run: string;
  readonly number: number;
  /** How far each replica's events are told with this one (`event-id.ts`). */
  readonly id: string;
  /** Other replicas do not hear of it. */
  readonly isLocal: boolean;
}

/** A place in the log: the next event that a reader has not had. */
export type Place = number;

/** The events of one run of a replica, as far as they are known here. */
interface Origin {
  last: number;
  /** All that came behind this one is here. */
  from: number;
  /** How many events of this replica there were when it came up. */
  readonly since: number;
}

/** Runs that have ended and are remembered, so that readers can come back with ids of them. */
const MAX_ENDED = 32;

/**
 * The newest events of this process and of the other replicas, all tenants together, in a ring: as many as it holds and no more, whoever reads. A
 * reader is a place in it and nothing else. An event is put into text once, however many read it. Events are told, not stored: whoever needs
 * what is, asks for it.
 */
export class EventLog {
  /** Another one with each start. */
  readonly run = randomBytes(4).toString('hex');
  readonly #node: string | undefined;
  readonly #ring: (LoggedEvent | undefined)[];
  readonly #now: () => number;
  readonly #readers = new Set<() => void>();
  readonly #own: Origin = { last: 0, from: 0, since: 0 };
  readonly #origins = new Map<string, Origin>([[this.run, this.#own]]);
  /** The one that ended first is the first. */
  readonly #ended = new Set<string>();
  #next: Place = 1;
  #isWaking = false;

  /** `node`: the replica's name, which its events say. */
  constructor(options: { readonly size?: number; readonly now?: () => number; readonly node?: string } = {}) {
    this.#ring = new Array<LoggedEvent | undefined>(options.size ?? LIMITS.keptEvents);
    this.#now = options.now ?? Date.now;
    this.#node = options.node;
  }

  /** Something happened here. */
  add(tenant: string, type: EventType, fields: Readonly<Record<string, unknown>>): void {
    const at = new Date(this.#now()).toISOString();
    this.#addOwn({ tenant, type, data: JSON.stringify({ type, at, node: this.#node, ...fields }) }, false);
  }

  /** Every reader is told that what is shown has to be read anew; also those of the other replicas, unless only this one missed something. */
  reset(isLocal: boolean): void {
    this.#addOwn({ tenant: '', type: 'reset', data: RESET }, isLocal);
  }

  /** Events of another replica follow, all of those behind `from`. What is missing before them, readers are told. */
  begin(run: string, from: number): void {
    const origin = this.#origins.get(run);
    this.#ended.delete(run);
    if (from > (origin?.last ?? 0)) this.reset(true);
    if (origin === undefined) this.#origins.set(run, { last: from, from, since: this.#own.last });
    else if (from > origin.last) {
      origin.last = from;
      origin.from = from;
    }
  }

  /** An event of a run that has begun. One that is known already changes nothing. */
  take(run: string, number: number, told: ToldEvent): void {
    const origin = this.#origins.get(run);
    if (origin !== undefined && number > origin.last) this.#put(run, origin, number, told, false);
  }

  /** The replica is gone: nobody knows what its last events were. */
  lost(run: string): void {
    if (!this.#origins.has(run)) return;
    this.#ended.add(run);
    if (this.#ended.size > MAX_ENDED) this.#forget([...this.#ended][0] as string);
    this.reset(true);
  }

  /** Before the oldest event that is kept. */
  get start(): Place {
    return Math.max(1, this.#next - this.#ring.length);
  }

  /** Behind the newest event. */
  get end(): Place {
    return this.#next;
  }

  /** The number of the last event of a run that is known. */
  lastOf(run: string): number {
    return this.#origins.get(run)?.last ?? 0;
  }

  /** Of own events, the number behind which all are kept. */
  get keptFrom(): number {
    return this.#own.from;
  }

  /** What who reads from this place on has seen. */
  idBefore(place: Place): string {
    const event = this.at(place);
    if (event === undefined) return this.#id();
    const seen = parseId(event.id) as Map<string, number>;
    return formatId(seen.set(event.run, event.number - 1));
  }

  /** What has been seen by who comes back with this id; null: what came after it is not all here. */
  seenBy(id: string): Seen | null {
    const seen = parseId(id);
    if (seen === null || (seen.get(this.run) ?? 0) > this.#own.last) return null;
    for (const run of seen.keys()) if (!this.#origins.has(run)) return null;
    for (const [run, { from }] of this.#origins) if ((seen.get(run) ?? 0) < from) return null;
    return seen;
  }

  /** The event at a place before the end; undefined: it is not here any more. */
  at(place: Place): LoggedEvent | undefined {
    return place < this.start || place >= this.#next ? undefined : this.#ring[place % this.#ring.length];
  }

  /** Calls `wake` once for all events of a turn. The returned function ends it. */
  onEvents(wake: () => void): () => void {
    this.#readers.add(wake);
    return () => void this.#readers.delete(wake);
  }

  #addOwn(told: ToldEvent, isLocal: boolean): void {
    this.#put(this.run, this.#own, this.#own.last + 1, told, isLocal);
  }

  #put(run: string, origin: Origin, number: number, { tenant, type, data }: ToldEvent, isLocal: boolean): void {
    origin.last = number;
    const at = this.#next % this.#ring.length;
    const dropped = this.#ring[at];
    const from = dropped && this.#origins.get(dropped.run);
    if (dropped && from) from.from = Math.max(from.from, dropped.number);
    this.#ring[at] = { tenant, type, data, run, number, isLocal, id: this.#id() };
    this.#next += 1;
    this.#wake();
  }

  #id(): string {
    let text = '';
    for (const [run, { last }] of this.#origins) text += `${text === '' ? '' : '.'}${run}-${last}`;
    return text;
  }

  /** Who knows nothing of it because it came up later, cannot go on here any more. */
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

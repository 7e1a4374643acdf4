import type { Writable } from 'node:stream';
import { messageOf } from '../core/error.ts';
import { EVENT_TYPES } from '../core/event.ts';
import { pause } from '../lib/backoff.ts';
import { endsWithin } from '../lib/deadline.ts';
import { type EventLog, parseId, type SentEvent } from './event-log.ts';
import { type EventFormat, EventReader, HEARTBEAT_MS } from './event-reader.ts';

/**
 * Replicas send each other their events as lines of JSON over the cluster connections, without the database.
 */

/** Other replicas, as this one knows them. */
export interface Others {
  living(): readonly { readonly id: string; readonly address: string }[];
  /**
   * Returns the answer of a replica's cluster listener at this path as a stream. Rejects when the replica
   * cannot be reached.
   */
  open(address: string, path: string): Promise<AsyncIterable<Buffer> & { destroy(): void }>;
}

export const EVENTS_PATH = '/cluster/events';
/** Limit far above the size of an event, whose texts from sandboxes are cut. */
const MAX_LINE_CHARS = 256 * 1024;
const LOOK_MS = 500;
/** Silence after which a connection counts as dead: a lost machine does not close it. */
const SILENCE_MS = 3 * HEARTBEAT_MS;
/** Time that a start waits for the events that the others keep. */
const FIRST_MS = 3000;

const LINES: EventFormat = {
  event: ({ number, tenant, type, data }) => `${JSON.stringify([number, tenant, type, data])}\n`,
  marker(_, id) {
    const [[run, from] = []] = parseId(id) ?? [];
    return `${JSON.stringify({ run, from })}\n`;
  },
  heartbeat: '\n',
};

/**
 * Writes the own events of this replica to another one until the connection ends. Kept events after `after`
 * (an id) come first.
 */
export function streamEvents(log: EventLog, after: string | null, to: Writable): void {
  const { run } = log;
  const reader = new EventReader({
    log,
    to,
    isWanted: event => event.run === run && !event.isLocal,
    format: LINES,
  });
  to.once('close', () => reader.end());
  const seen = after === null ? 0 : (parseId(after)?.get(run) ?? 0);
  reader.resume(new Map([[run, Math.max(seen, log.keptFrom)]]));
  // The empty line shows that all kept events have been sent.
  reader.offer(LINES.heartbeat);
}

/** Follows the events of all other living replicas, and adds them to the log. */
export class PeerEvents {
  readonly #log: EventLog;
  readonly #others: Others;
  readonly #warn: (text: string, fields: object) => void;
  readonly #silenceMs: number;
  readonly #followers = new Map<string, Follower>();
  #timer: NodeJS.Timeout | undefined;

  constructor(
    log: EventLog,
    others: Others,
    warn: (text: string, fields: object) => void,
    silenceMs: number = SILENCE_MS,
  ) {
    this.#log = log;
    this.#others = others;
    this.#warn = warn;
    this.#silenceMs = silenceMs;
  }

  /** Begins to follow. Resolves when the events that the others keep are in the log, or after `FIRST_MS`. */
  async start(): Promise<void> {
    this.#updateFollowers();
    this.#timer = setInterval(() => this.#updateFollowers(), LOOK_MS).unref();
    await endsWithin(Promise.all([...this.#followers.values()].map(({ first }) => first)), FIRST_MS);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const follower of this.#followers.values()) follower.close();
    this.#followers.clear();
  }

  #updateFollowers(): void {
    const living = new Map(this.#others.living().map(({ id, address }) => [id, address]));
    for (const [id, address] of living) {
      const follower = this.#followers.get(id);
      if (follower !== undefined) follower.address = address;
      else this.#followers.set(id, new Follower(this.#log, this.#others, address, this.#warn, this.#silenceMs));
    }
    for (const [id, follower] of this.#followers) {
      // While the database is unavailable, all replicas seem dead but continue to run.
      if (living.has(id) || follower.isConnected) continue;
      follower.close();
      this.#followers.delete(id);
      if (follower.run !== '') this.#log.lost(follower.run);
    }
  }
}

class Follower {
  address: string;
  run = '';
  isConnected = false;
  /** Resolves when the replica has sent the events that it keeps, or when that failed. */
  readonly first: Promise<void>;
  readonly #log: EventLog;
  readonly #others: Others;
  readonly #warn: (text: string, fields: object) => void;
  readonly #silenceMs: number;
  #resolveFirst!: () => void;
  #stream: { destroy(): void } | undefined;
  #isClosed = false;

  constructor(
    log: EventLog,
    others: Others,
    address: string,
    warn: (text: string, fields: object) => void,
    silenceMs: number,
  ) {
    this.#log = log;
    this.#others = others;
    this.address = address;
    this.#warn = warn;
    this.#silenceMs = silenceMs;
    this.first = new Promise(resolve => {
      this.#resolveFirst = resolve;
    });
    void this.#follow();
  }

  close(): void {
    this.#isClosed = true;
    this.#stream?.destroy();
  }

  async #follow(): Promise<void> {
    while (!this.#isClosed) {
      try {
        const after = this.run === '' ? '' : `?after=${this.run}-${this.#log.lastOf(this.run)}`;
        const stream = await this.#others.open(this.address, EVENTS_PATH + after);
        this.#stream = stream;
        this.isConnected = true;
        if (!this.#isClosed) await this.#read(stream);
      } catch (error) {
        if (error instanceof BadLine) this.#warn(error.message, { address: this.address });
      }
      this.#stream?.destroy();
      this.isConnected = false;
      this.#resolveFirst();
      await pause(LOOK_MS);
    }
  }

  async #read(stream: AsyncIterable<Buffer> & { destroy(): void }): Promise<void> {
    let rest = '';
    const decoder = new TextDecoder();
    const silence = setTimeout(() => stream.destroy(), this.#silenceMs).unref();
    try {
      for await (const chunk of stream) {
        silence.refresh();
        const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
        rest = lines.pop() ?? '';
        if (rest.length > MAX_LINE_CHARS) throw new BadLine('the line is too long');
        for (const line of lines) this.#receive(line);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  #receive(line: string): void {
    if (line === '') {
      this.#resolveFirst();
      return;
    }
    const said = readLine(line);
    if ('run' in said) {
      if (this.run !== '' && this.run !== said.run) this.#log.lost(this.run);
      this.run = said.run;
      this.#log.startRun(said.run, said.from);
    } else this.#log.addOfRun(this.run, said.number, said.sent);
  }
}

class BadLine extends Error {
  constructor(problem: string) {
    super(`a replica sent an unreadable event: ${problem}`);
  }
}

type PeerLine = { readonly run: string; readonly from: number } | { readonly number: number; readonly sent: SentEvent };

function readLine(line: string): PeerLine {
  let said: unknown;
  try {
    said = JSON.parse(line);
  } catch (error) {
    throw new BadLine(messageOf(error));
  }
  if (Array.isArray(said)) {
    const [number, tenant, type, data] = said as unknown[];
    const known = [...EVENT_TYPES, 'reset' as const].find(each => each === type);
    if (isNumber(number) && typeof tenant === 'string' && known !== undefined && isOneLine(data)) {
      return { number, sent: { tenant, type: known, data } };
    }
  } else {
    const { run, from } = (said ?? {}) as { readonly run?: unknown; readonly from?: unknown };
    if (typeof run === 'string' && /^[0-9a-f]{8}$/.test(run) && isNumber(from)) return { run, from };
  }
  throw new BadLine('the line is neither an event nor a position');
}

function isNumber(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isOneLine(value: unknown): value is string {
  return typeof value === 'string' && !/[\r\n]/.test(value);
}

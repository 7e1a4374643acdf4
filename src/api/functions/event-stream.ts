import { LIMITS } from '../../core/limits.ts';
import type { HeaderList, StreamExchange } from '../../http/hot/exchange.ts';
import { HeldBytes } from '../../lib/budgets.ts';

const HEARTBEAT_MS = 15_000;
/** Bytes that a stream converts per turn of the event loop before other streams continue. */
const TURN_BYTES = 64 * 1024;
/** Cost of an event in a turn, in addition to its bytes. */
const EVENT_BYTES = 32;
/** Memory of the waiting events of all streams. */
const WAITING = new HeldBytes(LIMITS.waitingEventBytes);

/** The form of a stream on the wire. */
export interface StreamFormat {
  readonly headers: HeaderList;
  /** Written every 15 s while nothing waits. `''`: nothing is written. */
  readonly heartbeat: string;
  /** Converts an event, or a piece of an event that is too large for a turn. */
  readonly encode: (bytes: Buffer, isFirst: boolean, isLast: boolean) => string | Buffer;
}

/**
 * Sends an answer as a stream of events.
 * Sends nothing before the first event, so that an earlier failure can still have its own status.
 *
 * While the client does not read, events wait in memory unconverted, because as lines they may be seven times
 * as large. The credit of the stream bounds these bytes, and a turn converts a bounded part of them.
 */
export class EventStream {
  readonly #exchange: StreamExchange;
  readonly #headers: HeaderList;
  readonly #format: StreamFormat;
  readonly #heartbeat: NodeJS.Timeout | undefined;
  readonly #waiting = new WaitingEvents();
  #grant: ((bytes: number) => void) | undefined;
  /** Cost of written events that the client's connection has not accepted. */
  #owedBytes = 0;
  #isFull = false;
  #hasTurn = false;
  #isOpen = false;
  /** True after the last event was added. */
  #isEnded = false;
  /** The bytes to write last, or `''`. */
  #last: string | Buffer = '';

  /** `headers`: additional headers of the answer, read when the answer begins. */
  constructor(exchange: StreamExchange, headers: HeaderList, format: StreamFormat) {
    this.#exchange = exchange;
    this.#headers = headers;
    this.#format = format;
    if (format.heartbeat !== '') this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS);
  }

  /** True once a byte was sent. Then the status cannot change. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Sends an event.
   * `grant` is called with the number of bytes that the client's connection has accepted, once it can accept
   * more. A stream has a single `grant`. An empty event counts as one byte.
   */
  event(bytes: Buffer, grant?: (bytes: number) => void): void {
    if (this.#isEnded || this.#exchange.response.destroyed) return;
    if (grant) this.#grant = grant;
    if (!this.#isFull && this.#waiting.isEmpty && bytes.length <= TURN_BYTES) {
      this.#write(this.#format.encode(bytes, true, true), Math.max(1, bytes.length));
      return;
    }
    if (!this.#isOpen) this.#open();
    this.#waiting.add(bytes);
    WAITING.hold(this, this.#waiting.heldBytes);
    if (!this.#isFull) this.#scheduleDrain();
  }

  /**
   * Ends the stream after all waiting events were sent, with `last` behind them in the form of the wire.
   * `''`: nothing is added, so a stream without an event sends nothing.
   */
  end(last: string | Buffer = ''): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#last = last;
    clearInterval(this.#heartbeat);
    if (this.#waiting.isEmpty) this.#finish();
  }

  /** Closes the connection, because other streams need the memory and this client has not read for long. */
  abandon(): void {
    this.#exchange.response.destroy();
  }

  #finish(): void {
    if (this.#last.length > 0) this.#write(this.#last, 0);
    this.#last = '';
    if (this.#isOpen) this.#exchange.response.end();
  }

  #beat(): void {
    // Between two pieces of an event, a heartbeat would end the event. A stream with waiting bytes is not
    // idle anyway.
    if (this.#waiting.isEmpty && !this.#isFull) this.#write(this.#format.heartbeat, 0);
  }

  #scheduleDrain(): void {
    if (this.#hasTurn) return;
    this.#hasTurn = true;
    setImmediate(() => {
      this.#hasTurn = false;
      this.#drainSome();
    });
  }

  #drainSome(): void {
    const waiting = this.#waiting;
    if (this.#isFull || waiting.isEmpty || this.#exchange.response.destroyed) return;
    const lines: Buffer[] = [];
    let costBytes = 0;
    for (let leftBytes = TURN_BYTES; leftBytes > 0 && !waiting.isEmpty; ) {
      const { bytes, isFirst, isLast } = waiting.next(leftBytes);
      const text = this.#format.encode(bytes, isFirst, isLast);
      lines.push(typeof text === 'string' ? Buffer.from(text) : text);
      costBytes += isFirst && isLast ? Math.max(1, bytes.length) : bytes.length;
      leftBytes -= bytes.length + EVENT_BYTES;
    }
    this.#write(Buffer.concat(lines), costBytes);
    if (!waiting.isEmpty) {
      WAITING.hold(this, waiting.heldBytes);
      if (!this.#isFull) this.#scheduleDrain();
      return;
    }
    WAITING.release(this);
    if (this.#isEnded) this.#finish();
  }

  #write(data: string | Buffer, costBytes: number): void {
    const { response } = this.#exchange;
    if (response.destroyed) return;
    if (!this.#isOpen) this.#open();
    if (response.write(data) && !this.#isFull) {
      if (costBytes > 0) this.#grant?.(costBytes);
      return;
    }
    this.#owedBytes += costBytes;
    if (this.#isFull) return;
    this.#isFull = true;
    response.once('drain', () => this.#drained());
  }

  #drained(): void {
    if (this.#exchange.response.destroyed) return;
    this.#isFull = false;
    const bytes = this.#owedBytes;
    this.#owedBytes = 0;
    if (bytes > 0) this.#grant?.(bytes);
    this.#drainSome();
  }

  #open(): void {
    this.#isOpen = true;
    const response = this.#exchange.begin(200, [...this.#format.headers, ...this.#headers]);
    response.once('close', () => {
      this.#waiting.clear();
      WAITING.release(this);
    });
  }
}

/** Headers that make proxies pass events on at once. */
const UNBUFFERED: HeaderList = ['Cache-Control', 'no-store', 'X-Accel-Buffering', 'no'];

/** Returns the headers of a stream of this type. */
export function streamHeaders(type: string): HeaderList {
  return ['Content-Type', type, ...UNBUFFERED];
}

/** Server-sent events (HTML standard, §9.2). */
export const SERVER_SENT_EVENTS: StreamFormat = {
  headers: streamHeaders('text/event-stream; charset=utf-8'),
  heartbeat: ':\n\n',
  encode: dataLines,
};

/** Returns the last event of a stream that failed too late for a status. */
export function errorEvent(json: string): string {
  return `event: error\ndata: ${json}\n\n`;
}

const DATA = Buffer.from('data: ');
const NEXT_LINE = Buffer.from('\ndata: ');
const EVENT_END = Buffer.from('\n\n');

/**
 * Converts an event, or a piece of it, to `data` lines. Each of the standard's three line ends ends a line.
 */
function dataLines(bytes: Buffer, isFirst: boolean, isLast: boolean): string | Buffer {
  if (isFirst && isLast && !bytes.includes(LF) && !bytes.includes(CR)) return `data: ${bytes.toString()}\n\n`;
  let ends = 0;
  for (let at = 0; at < bytes.length; at++) if (bytes[at] === LF || bytes[at] === CR) ends += 1;
  const lines = Buffer.allocUnsafe(bytes.length + (ends + 1) * NEXT_LINE.length + EVENT_END.length);
  let to = isFirst ? DATA.copy(lines) : 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte !== LF && byte !== CR) {
      lines[to++] = byte;
      continue;
    }
    if (byte === CR && bytes[at + 1] === LF) at += 1;
    lines.set(NEXT_LINE, to);
    to += NEXT_LINE.length;
  }
  if (isLast) to += EVENT_END.copy(lines, to);
  return lines.subarray(0, to);
}

/** An event, or a piece of an event that is too large for a turn. */
export interface EventPiece {
  readonly bytes: Buffer;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

const LENGTH_BYTES = 4;
const FIRST_BYTES = 4096;
const LF = 0x0a;
const CR = 0x0d;
const EMPTY = Buffer.alloc(0);

/**
 * Queues events in a single buffer, first in, first out.
 * A quarter of a million one-byte events occupy about a megabyte, instead of a quarter of a million objects.
 */
export class WaitingEvents {
  #memory: Buffer = EMPTY;
  #from = 0;
  #to = 0;
  /** Bytes of the first event that were already returned. */
  #takenBytes = 0;

  get isEmpty(): boolean {
    return this.#from === this.#to;
  }

  /** Bytes of memory that the queue occupies. */
  get heldBytes(): number {
    return this.#memory.length;
  }

  add(bytes: Buffer): void {
    this.#makeRoom(LENGTH_BYTES + bytes.length);
    this.#memory.writeUInt32BE(bytes.length, this.#to);
    bytes.copy(this.#memory, this.#to + LENGTH_BYTES);
    this.#to += LENGTH_BYTES + bytes.length;
  }

  /**
   * Returns the first event, or up to `maxBytes` of its remaining bytes. The queue must not be empty.
   * The result is a view that is valid until the next `add`.
   */
  next(maxBytes: number): EventPiece {
    const length = this.#memory.readUInt32BE(this.#from);
    const start = this.#from + LENGTH_BYTES;
    const isFirst = this.#takenBytes === 0;
    const first = start + this.#takenBytes;
    const end = start + length;
    let until = Math.min(end, first + maxBytes);
    // A CRLF must stay in one piece, because two halves would count as two line ends.
    if (until < end && this.#memory[until - 1] === CR && this.#memory[until] === LF) until += 1;
    const bytes = this.#memory.subarray(first, until);
    const isLast = until === end;
    if (isLast) {
      this.#from = end;
      this.#takenBytes = 0;
      if (this.isEmpty) this.clear();
    } else this.#takenBytes += bytes.length;
    return { bytes, isFirst, isLast };
  }

  clear(): void {
    this.#memory = EMPTY;
    this.#from = 0;
    this.#to = 0;
    this.#takenBytes = 0;
  }

  #makeRoom(bytes: number): void {
    if (this.#to + bytes <= this.#memory.length) return;
    const waiting = this.#memory.subarray(this.#from, this.#to);
    const enough = waiting.length + bytes;
    // Earlier views must not change, so the waiting bytes are always copied to new memory.
    const memory = Buffer.allocUnsafeSlow(
      Math.max(FIRST_BYTES, enough <= this.#memory.length / 2 ? this.#memory.length : enough + waiting.length),
    );
    waiting.copy(memory);
    this.#memory = memory;
    this.#from = 0;
    this.#to = waiting.length;
  }
}

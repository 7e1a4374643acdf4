import { LIMITS } from '../../core/limits.ts';
import type { HeaderList, StreamExchange } from '../../http/hot/exchange.ts';
import { HeldBytes } from '../../lib/held-bytes.ts';
import { WaitingEvents } from './waiting-events.ts';

const HEARTBEAT_MS = 15_000;
const HEARTBEAT = ':\n\n';
/** Bytes that a stream converts per turn of the event loop before other streams continue. */
const TURN_BYTES = 64 * 1024;
/** Cost of an event in a turn, in addition to its bytes. */
const EVENT_BYTES = 32;
/** Memory of the waiting events of all streams. */
const WAITING = new HeldBytes(LIMITS.waitingEventBytes);

/**
 * Sends an answer as server-sent events (HTML standard, §9.2).
 * Sends nothing before the first event, so that an earlier failure can still have its own status.
 *
 * While the client does not read, events wait in memory unconverted, because as lines they may be seven times
 * as large. The credit of the stream bounds these bytes, and a turn converts a bounded part of them.
 */
export class EventStream {
  readonly #exchange: StreamExchange;
  readonly #headers: HeaderList;
  readonly #heartbeat: NodeJS.Timeout;
  readonly #waiting = new WaitingEvents();
  #grant: ((bytes: number) => void) | undefined;
  /** Cost of written events that the client's connection has not accepted. */
  #owedBytes = 0;
  #isFull = false;
  #hasTurn = false;
  #isOpen = false;
  /** True after the last event was added. */
  #isEnded = false;
  /** The error event to write last, or `''`. */
  #error = '';

  /** `headers`: additional headers of the answer, read when the answer begins. */
  constructor(exchange: StreamExchange, headers: HeaderList) {
    this.#exchange = exchange;
    this.#headers = headers;
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS);
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
      this.#write(dataLines(bytes, true, true), Math.max(1, bytes.length));
      return;
    }
    if (!this.#isOpen) this.#open();
    this.#waiting.add(bytes);
    WAITING.hold(this, this.#waiting.heldBytes);
    if (!this.#isFull) this.#takeTurn();
  }

  /** Ends the stream with an error event, for a failure that came too late for a status. */
  error(json: string): void {
    if (this.#isEnded) return;
    this.#error = `event: error\ndata: ${json}\n\n`;
    this.end();
  }

  /** Ends the stream after all waiting events were sent. */
  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearInterval(this.#heartbeat);
    if (this.#waiting.isEmpty) this.#finish();
  }

  /** Closes the connection, because other streams need the memory and this client has not read for long. */
  giveUp(): void {
    this.#exchange.response.destroy();
  }

  #finish(): void {
    if (this.#error !== '') this.#write(this.#error, 0);
    this.#error = '';
    if (this.#isOpen) this.#exchange.response.end();
  }

  #beat(): void {
    // Between two pieces of an event, a heartbeat would end the event. A stream with waiting bytes is not
    // idle anyway.
    if (this.#waiting.isEmpty && !this.#isFull) this.#write(HEARTBEAT, 0);
  }

  #takeTurn(): void {
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
      const text = dataLines(bytes, isFirst, isLast);
      lines.push(typeof text === 'string' ? Buffer.from(text) : text);
      costBytes += isFirst && isLast ? Math.max(1, bytes.length) : bytes.length;
      leftBytes -= bytes.length + EVENT_BYTES;
    }
    this.#write(Buffer.concat(lines), costBytes);
    if (!waiting.isEmpty) {
      WAITING.hold(this, waiting.heldBytes);
      if (!this.#isFull) this.#takeTurn();
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
    const response = this.#exchange.begin(200, [...STREAM_HEADERS, ...this.#headers]);
    response.once('close', () => {
      this.#waiting.clear();
      WAITING.release(this);
    });
  }
}

const STREAM_HEADERS: HeaderList = [
  ...['Content-Type', 'text/event-stream; charset=utf-8'],
  ...['Cache-Control', 'no-store'],
  ...['X-Accel-Buffering', 'no'],
];

const LF = 0x0a;
const CR = 0x0d;
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

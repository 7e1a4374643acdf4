import type net from 'node:net';
import { pause } from '../lib/backoff.ts';
import { OVER } from '../lib/linked-signal.ts';
import { isShortage } from '../lib/system-errors.ts';
import { brokenBy, type Connection, type ConnectionOwner } from './connection.ts';
import { ProtocolError } from './decoder.ts';

/** How long after its channel a connection is opened that nobody has needed. */
const LATER_MS = 1000;
/** Before it is tried again, where this process had too little to try. */
const RETRY_MS = 250;
/** Frames that the runtime has not read. They are small, and each has a cause: so many wait only where it does not mean to read them. */
const MAX_UNREAD_BYTES = 1024 * 1024;

/** The control connection of a channel, which may be opened later than the data connection: what is written until then waits for it. */
export class ControlLink {
  readonly #owner: ConnectionOwner;
  readonly #connect: (signal: AbortSignal) => Promise<Connection>;
  readonly #over = new AbortController();
  #isOpening = false;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #socket: net.Socket | undefined;
  #later: NodeJS.Timeout | undefined;

  constructor(owner: ConnectionOwner, connect: (signal: AbortSignal) => Promise<Connection>) {
    this.#owner = owner;
    this.#connect = connect;
  }

  get isEnded(): boolean {
    return this.#socket?.destroyed ?? this.#over.signal.aborted;
  }

  /** False: nothing was said over it, and nothing will be unless somebody writes. */
  get isUsed(): boolean {
    return this.#isOpening;
  }

  /** Connects after a while: what is short-lived needs none, and what lives has it before there is something to say. */
  openLater(): void {
    if (this.#isOpening) return;
    // Not all at once where many were taken up in one moment.
    this.#later ??= setTimeout(() => this.open(), LATER_MS * (1 + Math.random())).unref();
  }

  /**
   * Connects, unless that has begun. A greeting may take as long as the channel lives: code that lets no other thread of its process run is slow,
   * not dead, and its calls have limits of time of their own. A refusal or a close is an end as any other: whoever connects to the runtime again
   * hears why.
   */
  open(): void {
    if (this.#isOpening || this.isEnded) return;
    this.#isOpening = true;
    clearTimeout(this.#later);
    void this.#untilOpen();
  }

  async #untilOpen(): Promise<void> {
    while (!this.isEnded) {
      try {
        this.take(await this.#connect(this.#over.signal));
        return;
      } catch (error) {
        if (this.isEnded) return;
        if (!isShortage(error)) {
          this.#owner.onClose(null);
          return;
        }
        await pause(RETRY_MS, this.#over.signal);
      }
    }
  }

  /** A connection that is open already. */
  take(connection: Connection): void {
    this.#isOpening = true;
    if (this.isEnded) {
      connection.socket.destroy();
      return;
    }
    this.#socket = connection.socket;
    for (const frame of this.#waiting) this.#socket.write(frame);
    this.#waiting = [];
    this.#waitingBytes = 0;
    connection.own(this.#owner);
  }

  /** Opens it where it is not. */
  write(frame: Buffer): void {
    if (this.#socket !== undefined) {
      this.#socket.write(frame);
      if (this.#socket.writableLength > MAX_UNREAD_BYTES) this.#endUnread();
      return;
    }
    this.#waiting.push(frame);
    this.#waitingBytes += frame.length;
    if (this.#waitingBytes > MAX_UNREAD_BYTES) this.#endUnread();
    else this.open();
  }

  #endUnread(): void {
    this.#owner.onClose(brokenBy(new ProtocolError('it does not read its control connection')));
  }

  destroy(): void {
    clearTimeout(this.#later);
    this.#over.abort(OVER);
    this.#waiting = [];
    this.#socket?.destroy();
  }
}

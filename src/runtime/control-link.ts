import type net from 'node:net';
import { pause } from '../lib/backoff.ts';
import { OVER } from '../lib/linked-signal.ts';
import { isShortage } from '../lib/system-errors.ts';
import { brokenBy, type Connection, type ConnectionOwner } from './connection.ts';
import { ProtocolError } from './decoder.ts';

/** Delay after which the connection is opened although no frame needs it yet. */
const LATER_MS = 1000;
/** Delay before a retry when this process had too few resources to connect. */
const RETRY_MS = 250;
/**
 * Limit of bytes that the runtime has not read.
 * The frames are small and each has a cause, so a runtime that exceeds the limit does not read at all.
 */
const MAX_UNREAD_BYTES = 1024 * 1024;

/**
 * The control connection of a channel. It may open later than the data connection; earlier frames are kept
 * for it.
 */
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

  /** True once opening has begun. False: no frame was sent, and none will be unless `write` is called. */
  get isUsed(): boolean {
    return this.#isOpening;
  }

  /**
   * Connects after a delay: short-lived channels need no control connection, and others have it before its
   * first use.
   */
  openLater(): void {
    if (this.#isOpening) return;
    // The random part spreads the connections of many instances that were adopted at once.
    this.#later ??= setTimeout(() => this.open(), LATER_MS * (1 + Math.random())).unref();
  }

  /**
   * Starts to connect, unless that has begun. The greeting may take as long as the channel is open.
   * Code that blocks all threads of its process makes a runtime slow, not dead, and its calls have their own
   * time limits. A refusal or a close ends the channel. The next connection to the runtime then reports the
   * reason.
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

  /** Uses a connection that is already open. */
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

  /** Writes a frame, and opens the connection first if necessary. */
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

import type net from 'node:net';
import { withDeadline } from '../lib/deadline.ts';
import { OVER } from '../lib/linked-signal.ts';
import type { Connection, ConnectionOwner } from './connection.ts';

/** A runtime that has answered over its data connection, and does not for so long over this one, is of no use. */
const OPEN_MS = 10_000;

/** How long after its channel a connection is opened that nobody has needed. */
const LATER_MS = 1000;

/** The control connection of a channel, which may be opened later than the data connection: what is written until then waits for it. */
export class ControlLink {
  readonly #owner: ConnectionOwner;
  readonly #connect: (signal: AbortSignal) => Promise<Connection>;
  readonly #over = new AbortController();
  #isOpening = false;
  #waiting: Buffer[] = [];
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

  /** Connects, unless that has begun. When it fails, that is an end as any other: whoever connects to the runtime again hears why. */
  open(): void {
    if (this.#isOpening || this.isEnded) return;
    this.#isOpening = true;
    clearTimeout(this.#later);
    withDeadline(OPEN_MS, signal => this.#connect(signal), this.#over.signal).then(
      connection => this.take(connection),
      () => {
        if (!this.isEnded) this.#owner.onClose(null);
      },
    );
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
    connection.own(this.#owner);
  }

  /** Opens it where it is not. */
  write(frame: Buffer): void {
    if (this.#socket !== undefined) {
      this.#socket.write(frame);
      return;
    }
    this.#waiting.push(frame);
    this.open();
  }

  destroy(): void {
    clearTimeout(this.#later);
    this.#over.abort(OVER);
    this.#waiting = [];
    this.#socket?.destroy();
  }
}

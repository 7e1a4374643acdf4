import type { TLSSocket } from 'node:tls';
import { AnswerReader, type AnswerSink } from './answer-reader.ts';

export interface PeerConnectionEvents {
  /** Called when the connection can take another request. */
  free(connection: PeerConnection): void;
  closed(connection: PeerConnection): void;
}

/**
 * Maximum size of a body that is copied into one write with its head. Up to this size the copy costs less
 * than a second write.
 */
const ONE_PIECE_BYTES = 16 * 1024;

/**
 * Sends complete requests to another replica, one at a time. Node's own client costs several times as much
 * for a request of a few bytes.
 */
export class PeerConnection {
  readonly address: string;
  readonly #socket: TLSSocket;
  readonly #reader: AnswerReader;
  readonly #events: PeerConnectionEvents;
  #sink: AnswerSink | null = null;
  #problem: Error | null = null;
  #hasEnded = false;
  /** True if some part of a request may have been sent. */
  isConnected = false;
  /** Time at which the connection became idle, monotonic milliseconds. */
  freeMs = 0;

  constructor(address: string, socket: TLSSocket, maxHeadBytes: number, events: PeerConnectionEvents) {
    this.address = address;
    this.#socket = socket;
    this.#reader = new AnswerReader(maxHeadBytes);
    this.#events = events;
    socket.once('secureConnect', () => {
      this.isConnected = true;
    });
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('error', error => {
      this.#problem ??= error;
    });
    socket.once('end', () => {
      this.#hasEnded = true;
    });
    socket.once('close', () => this.#closed());
  }

  /** True if the connection can take a request. */
  get isFree(): boolean {
    return this.#sink === null && !this.#socket.destroyed && !this.#hasEnded;
  }

  /** Sends a request and passes its answer to `sink`. `head` includes its empty line. */
  ask(head: string, body: Buffer | null, isHead: boolean, sink: AnswerSink): void {
    const socket = this.#socket;
    this.#sink = sink;
    this.#reader.begin(sink, isHead);
    if (body === null) socket.write(head, 'latin1');
    else if (body.length <= ONE_PIECE_BYTES) socket.write(head + body.toString('latin1'), 'latin1');
    else {
      socket.cork();
      socket.write(head, 'latin1');
      socket.write(body);
      socket.uncork();
    }
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Closes the connection. The sink gets no further events. */
  destroy(): void {
    this.#sink = null;
    this.#reader.forget();
    this.#socket.destroy();
  }

  #read(chunk: Buffer): void {
    if (!this.#reader.isReading) {
      this.#socket.destroy();
      return;
    }
    const sink = this.#sink;
    try {
      this.#reader.read(chunk, this.#whole);
    } catch (error) {
      this.destroy();
      sink?.broke(error as Error);
    }
  }

  readonly #whole = (isReusable: boolean): void => {
    this.#sink = null;
    if (!isReusable) {
      this.#socket.destroy();
      return;
    }
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#events.free(this);
  };

  #closed(): void {
    this.#events.closed(this);
    const sink = this.#sink;
    this.#sink = null;
    if (sink === null) return;
    if (this.#hasEnded && this.#problem === null && this.#reader.ended()) return;
    this.#reader.forget();
    sink.broke(this.#problem ?? new Error('it closed the connection'));
  }
}

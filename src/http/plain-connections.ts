import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { PlainAnswer } from './plain-answer.ts';
import { headTextOf, type PlainHead, PlainRequest, readPlainHead } from './plain-request.ts';

/** Who answers; `R` is its way to a hot route. */
export interface PlainHost<R> {
  /** Null: a request of this head is for `node:http`. */
  routeOf(head: PlainHead): R | null;
  /** False: it is for `node:http` now, and nothing has happened. True: the answer will be written. */
  takePlain(request: PlainRequest, answer: PlainAnswer, route: R): boolean;
}

/** Bytes that are kept of requests behind one that runs; the kernel has the rest. */
const MAX_HELD_BYTES = 64 * 1024;
/** In how many pieces: a byte that is kept by itself takes four hundred. */
const MAX_HELD_CHUNKS = 64;
/** Heads of all connections that are remembered, and how long one of them may be. */
const MAX_KNOWN_HEADS = 1024;
const MAX_KNOWN_CHARS = 1024;

/**
 * Reads plain requests of hot routes from their connections itself: what `node:http` makes for each request costs ten times what the
 * service does for it. Anything else goes to `node:http` byte for byte as it came. The first request of a connection does so always: from
 * then on the limits of time of `node:http` hold for a connection between its requests.
 *
 * A connection on which something unusual comes is left to `node:http` for good. So there is never a question where a request ends:
 * either both ways agree, or only one of them has read anything.
 */
export class PlainConnections<R> {
  readonly #server: Server;
  readonly #host: PlainHost<R>;
  readonly #connections = new WeakMap<Socket, PlainConnection<R>>();
  /** Heads that were read before, by their very bytes: callers with many connections, or many targets, send the same ones again and again. */
  readonly #heads = new Map<string, KnownHead<R>>();

  constructor(server: Server, host: PlainHost<R>) {
    this.#server = server;
    this.#host = host;
  }

  /** Connections that come from now on. */
  start(): void {
    const keepAliveSeconds = Math.floor(this.#server.keepAliveTimeout / 1000);
    this.#server.on('connection', socket => {
      if (socket.destroyed) return;
      // How `node:http` hears of what comes on any kind of connection.
      const [feed, ...others] = socket.listeners('data') as ((chunk: Buffer) => void)[];
      if (feed === undefined || others.length > 0) return;
      this.#connections.set(socket, new PlainConnection(socket, feed, this.#host, this.#heads, keepAliveSeconds));
    });
    this.#server.on('timeout', socket => {
      if (!this.#connections.get(socket)?.isBusy && !hasTimeOfItsOwn(socket)) socket.destroy();
    });
  }

  /** `node:http` has read a request. */
  began(socket: Socket, response: ServerResponse): void {
    this.#connections.get(socket)?.began(response);
  }
}

/** The head of a request for a hot route. */
interface KnownHead<R> {
  readonly bytes: Buffer;
  readonly head: PlainHead;
  readonly route: R;
}

class PlainConnection<R> {
  readonly #socket: Socket;
  readonly #feed: (chunk: Buffer) => void;
  readonly #host: PlainHost<R>;
  readonly #keepAliveSeconds: number;
  /** Of the request that `node:http` was given last; undefined when it has read none. */
  #response: ServerResponse | undefined;
  /** Of the body of that request, which did not come yet. */
  #bodyLeft = 0;
  /** A request that was read here is not answered yet. */
  #isRunning = false;
  /** What came meanwhile. */
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The head of the last request for a hot route: most callers send the same one again and again. */
  #known: KnownHead<R> | undefined;
  readonly #heads: Map<string, KnownHead<R>>;

  constructor(
    socket: Socket,
    feed: (chunk: Buffer) => void,
    host: PlainHost<R>,
    heads: Map<string, KnownHead<R>>,
    keepAliveSeconds: number,
  ) {
    this.#socket = socket;
    this.#feed = feed;
    this.#host = host;
    this.#heads = heads;
    this.#keepAliveSeconds = keepAliveSeconds;
    socket.off('data', feed);
    socket.on('data', this.#onData);
  }

  /**
   * Whether it is not its next request that it waits for. The time for which `node:http` lets a connection wait runs from the last bytes in
   * either direction; it is not stopped for each request, which would cost a timer that outlives small collections of garbage. How long a
   * call takes has a bound of its own, and how long a reader may take nothing (`UnreadAnswers`).
   */
  get isBusy(): boolean {
    return this.#isRunning || this.#socket.writableLength > 0;
  }

  began(response: ServerResponse): void {
    this.#response = response;
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#isRunning) this.#hold(chunk);
    else if (this.#bodyLeft > 0) this.#giveBody(chunk);
    else this.#begin(chunk);
  };

  #begin(chunk: Buffer): void {
    if (this.#response !== undefined && !this.#isBetweenRequests(this.#response)) {
      this.#leave(chunk);
      return;
    }
    const known = this.#known;
    if (known !== undefined && startsWith(chunk, known.bytes)) {
      this.#takeOrGive(known.head, known.route, chunk);
      return;
    }
    const text = headTextOf(chunk);
    const readBefore = text === null ? undefined : this.#heads.get(text);
    if (readBefore !== undefined) {
      this.#known = readBefore;
      this.#takeOrGive(readBefore.head, readBefore.route, chunk);
      return;
    }
    const head = text === null ? null : readPlainHead(text);
    if (text === null || head === null) {
      this.#leave(chunk);
      return;
    }
    const route = this.#host.routeOf(head);
    if (route !== null) this.#remember(text, { bytes: Buffer.from(chunk.subarray(0, head.headBytes)), head, route });
    this.#takeOrGive(head, route, chunk);
  }

  #remember(text: string, known: KnownHead<R>): void {
    this.#known = known;
    if (text.length > MAX_KNOWN_CHARS) return;
    // Heads come from callers, so what is remembered of them has a bound.
    if (this.#heads.size >= MAX_KNOWN_HEADS) this.#heads.clear();
    this.#heads.set(text, known);
  }

  #takeOrGive(head: PlainHead, route: R | null, chunk: Buffer): void {
    const isWhole = chunk.length === head.headBytes + head.bodyBytes;
    if (route === null || !isWhole || this.#response === undefined || !this.#take(head, route, chunk)) {
      this.#give(head, chunk);
    }
  }

  /** `node:http` has answered all that it was given, and the caller has taken the answers. */
  #isBetweenRequests(response: ServerResponse): boolean {
    const { writable, writableNeedDrain } = this.#socket;
    return response.writableEnded && response.socket === null && writable && !writableNeedDrain;
  }

  #take(head: PlainHead, route: R, chunk: Buffer): boolean {
    const socket = this.#socket;
    const body = head.bodyBytes === 0 ? undefined : chunk.subarray(head.headBytes);
    const answer = new PlainAnswer(socket, this.#keepAliveSeconds, this.#answered);
    this.#isRunning = true;
    if (this.#host.takePlain(new PlainRequest(head, socket, body), answer, route)) return true;
    this.#isRunning = false;
    return false;
  }

  readonly #answered = (): void => {
    this.#isRunning = false;
    // Behind all that is to be done for the answer.
    if (this.#heldBytes > 0 && !this.#socket.destroyed) process.nextTick(() => this.#release());
  };

  #release(): void {
    const chunk = Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    // Nobody could be answered any more.
    if (!this.#socket.writable) return;
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#begin(chunk);
  }

  /** Requests of one connection are answered in their order. */
  #hold(chunk: Buffer): void {
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#held.length > MAX_HELD_CHUNKS) this.#held = [Buffer.concat(this.#held)];
    if (this.#heldBytes >= MAX_HELD_BYTES) this.#socket.pause();
  }

  /** A request that is not for here, but whose end is known. */
  #give(head: PlainHead, chunk: Buffer): void {
    const bytes = head.headBytes + head.bodyBytes;
    if (chunk.length > bytes) {
      this.#leave(chunk);
      return;
    }
    this.#bodyLeft = bytes - chunk.length;
    this.#response = undefined;
    this.#feed(chunk);
    // Not read as a request, or kept by somebody who has not decided yet.
    if (this.#response === undefined) this.#leave();
  }

  #giveBody(chunk: Buffer): void {
    if (chunk.length > this.#bodyLeft) {
      this.#leave(chunk);
      return;
    }
    this.#bodyLeft -= chunk.length;
    this.#feed(chunk);
  }

  /** `node:http` has the connection for good. */
  #leave(chunk?: Buffer): void {
    this.#socket.off('data', this.#onData);
    this.#socket.on('data', this.#feed);
    if (chunk !== undefined) this.#feed(chunk);
  }
}

/** Whoever answers by `node:http` has set a time and acts at its end. Asked of the socket, as `node:http` does before it asks its server. */
function hasTimeOfItsOwn(socket: Socket): boolean {
  const { _httpMessage: answer } = socket as Socket & { readonly _httpMessage?: ServerResponse | null };
  return answer != null && answer.listenerCount('timeout') > 0;
}

function startsWith(bytes: Buffer, beginning: Buffer): boolean {
  const { length } = beginning;
  return bytes.length >= length && bytes.compare(beginning, 0, length, 0, length) === 0;
}

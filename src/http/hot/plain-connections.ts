import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { headTextOf, PlainAnswer, type PlainHead, PlainRequest, readPlainHead } from './plain-messages.ts';

/** Serves plain requests. `R` is the host's description of a route. */
export interface PlainHost<R> {
  /** Returns the route for a head. null: `node:http` must serve the request. */
  routeOf(head: PlainHead): R | null;
  /** Serves a request. Returns false if `node:http` must serve it; nothing has happened then. */
  tryServePlain(request: PlainRequest, answer: PlainAnswer, route: R): boolean;
}

/**
 * Bytes to keep of requests that arrive while another one runs. Above it, reading pauses, and the kernel
 * keeps the rest.
 */
const MAX_HELD_BYTES = 64 * 1024;
/** Maximum number of kept pieces. A single byte that is kept on its own occupies four hundred. */
const MAX_HELD_CHUNKS = 64;
/** Maximum number of cached heads for all connections, and the maximum length of a head. */
const MAX_KNOWN_HEADS = 1024;
const MAX_KNOWN_CHARS = 1024;

/**
 * Reads plain requests of hot routes directly from their connections.
 * The work of `node:http` per request costs ten times as much as the work of the service.
 * All other bytes are passed to `node:http` unchanged. The first request of a connection always is, so that
 * the timeouts of `node:http` apply between requests.
 *
 * After an unusual request, `node:http` keeps the connection permanently. The two readers can therefore never
 * disagree about the end of a request.
 */
export class PlainConnections<R> {
  readonly #server: Server;
  readonly #host: PlainHost<R>;
  readonly #connections = new WeakMap<Socket, PlainConnection<R>>();
  /**
   * Caches parsed heads by their text.
   * Clients with many connections or many targets send the same heads again and again.
   */
  readonly #heads = new Map<string, KnownHead<R>>();

  constructor(server: Server, host: PlainHost<R>) {
    this.#server = server;
    this.#host = host;
  }

  /** Starts reading from connections that are accepted from now on. */
  start(): void {
    const keepAliveSeconds = Math.floor(this.#server.keepAliveTimeout / 1000);
    this.#server.on('connection', socket => {
      if (socket.destroyed) return;
      // The listener with which `node:http` receives data on any kind of connection.
      const [feed, ...others] = socket.listeners('data') as ((chunk: Buffer) => void)[];
      if (feed === undefined || others.length > 0) return;
      this.#connections.set(socket, new PlainConnection(socket, feed, this.#host, this.#heads, keepAliveSeconds));
    });
    this.#server.on('timeout', socket => {
      if (!this.#connections.get(socket)?.isBusy && !hasTimeOfItsOwn(socket)) socket.destroy();
    });
  }

  /** Called when `node:http` has read a request. */
  began(socket: Socket, response: ServerResponse): void {
    this.#connections.get(socket)?.began(response);
  }
}

/** The parsed head of a request for a hot route. */
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
  /** The response to the last request that `node:http` received; undefined if it has read none. */
  #response: ServerResponse | undefined;
  /** Missing bytes of the body of that request. */
  #bodyLeft = 0;
  /** True while a request that was read here is unanswered. */
  #isRunning = false;
  /** Chunks that arrived while a request ran. */
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The head of the last request for a hot route. Most clients send the same head again and again. */
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
   * True while a request is running or its answer is unsent.
   * The idle timeout of `node:http` runs from the last bytes in either direction. It is not stopped per
   * request, because that would cost a timer that survives minor garbage collections.
   * Calls have their own timeout, and so have readers that accept no bytes (`UnreadAnswers`).
   */
  get isBusy(): boolean {
    return this.#isRunning || this.#socket.writableLength > 0;
  }

  began(response: ServerResponse): void {
    this.#response = response;
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#isRunning) this.#buffer(chunk);
    else if (this.#bodyLeft > 0) this.#passBodyToNode(chunk);
    else this.#read(chunk);
  };

  #read(chunk: Buffer): void {
    if (this.#response !== undefined && !this.#isBetweenRequests(this.#response)) {
      this.#detach(chunk);
      return;
    }
    const known = this.#known;
    if (known !== undefined && startsWith(chunk, known.bytes)) {
      this.#dispatch(known.head, known.route, chunk);
      return;
    }
    const text = headTextOf(chunk);
    const readBefore = text === null ? undefined : this.#heads.get(text);
    if (readBefore !== undefined) {
      this.#known = readBefore;
      this.#dispatch(readBefore.head, readBefore.route, chunk);
      return;
    }
    const head = text === null ? null : readPlainHead(text);
    if (text === null || head === null) {
      this.#detach(chunk);
      return;
    }
    const route = this.#host.routeOf(head);
    if (route !== null) this.#remember(text, { bytes: Buffer.from(chunk.subarray(0, head.headBytes)), head, route });
    this.#dispatch(head, route, chunk);
  }

  #remember(text: string, known: KnownHead<R>): void {
    this.#known = known;
    if (text.length > MAX_KNOWN_CHARS) return;
    // Clients choose the heads, so the cache has a limit.
    if (this.#heads.size >= MAX_KNOWN_HEADS) this.#heads.clear();
    this.#heads.set(text, known);
  }

  #dispatch(head: PlainHead, route: R | null, chunk: Buffer): void {
    const isWhole = chunk.length === head.headBytes + head.bodyBytes;
    if (route === null || !isWhole || this.#response === undefined || !this.#tryServe(head, route, chunk)) {
      this.#passToNode(head, chunk);
    }
  }

  /** Returns true if `node:http` has answered all its requests, and the client has received the answers. */
  #isBetweenRequests(response: ServerResponse): boolean {
    const { writable, writableNeedDrain } = this.#socket;
    return response.writableEnded && response.socket === null && writable && !writableNeedDrain;
  }

  #tryServe(head: PlainHead, route: R, chunk: Buffer): boolean {
    const socket = this.#socket;
    const body = head.bodyBytes === 0 ? undefined : chunk.subarray(head.headBytes);
    const answer = new PlainAnswer(socket, this.#keepAliveSeconds, this.#answered);
    this.#isRunning = true;
    if (this.#host.tryServePlain(new PlainRequest(head, socket, body), answer, route)) return true;
    this.#isRunning = false;
    return false;
  }

  readonly #answered = (): void => {
    this.#isRunning = false;
    // Runs after all other work for the answer.
    if (this.#heldBytes > 0 && !this.#socket.destroyed) process.nextTick(() => this.#release());
  };

  #release(): void {
    const chunk = Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    // The client can no longer receive an answer.
    if (!this.#socket.writable) return;
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#read(chunk);
  }

  /**
   * Keeps a chunk until the running request is answered, because answers must keep the order of their
   * requests.
   */
  #buffer(chunk: Buffer): void {
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#held.length > MAX_HELD_CHUNKS) this.#held = [Buffer.concat(this.#held)];
    if (this.#heldBytes >= MAX_HELD_BYTES) this.#socket.pause();
  }

  /** Passes to `node:http` a request that is not for a hot route, but whose end is known. */
  #passToNode(head: PlainHead, chunk: Buffer): void {
    const bytes = head.headBytes + head.bodyBytes;
    if (chunk.length > bytes) {
      this.#detach(chunk);
      return;
    }
    this.#bodyLeft = bytes - chunk.length;
    this.#response = undefined;
    this.#feed(chunk);
    // `node:http` did not read a request, or a listener delays it.
    if (this.#response === undefined) this.#detach();
  }

  #passBodyToNode(chunk: Buffer): void {
    if (chunk.length > this.#bodyLeft) {
      this.#detach(chunk);
      return;
    }
    this.#bodyLeft -= chunk.length;
    this.#feed(chunk);
  }

  /** Leaves the connection to `node:http` permanently. */
  #detach(chunk?: Buffer): void {
    this.#socket.off('data', this.#onData);
    this.#socket.on('data', this.#feed);
    if (chunk !== undefined) this.#feed(chunk);
  }
}

/**
 * Returns true if the response has its own listener for `timeout`.
 * Reads the response from the socket, as `node:http` does before it notifies its server.
 */
function hasTimeOfItsOwn(socket: Socket): boolean {
  const { _httpMessage: answer } = socket as Socket & { readonly _httpMessage?: ServerResponse | null };
  return answer != null && answer.listenerCount('timeout') > 0;
}

function startsWith(bytes: Buffer, beginning: Buffer): boolean {
  const { length } = beginning;
  return bytes.length >= length && bytes.compare(beginning, 0, length, 0, length) === 0;
}

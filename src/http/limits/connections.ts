import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { LIMITS } from '../../core/limits.ts';
import { Counter } from '../../lib/counter.ts';
import { addressGroup } from '../access/remote-address.ts';

/** Activity of a connection that has received a request. */
interface Activity {
  /** Number of running requests plus answers that wait for earlier ones. */
  open: number;
}

/**
 * Tracks the connections of a server, so that closing the server waits for running requests only.
 * Node would also wait for connections that never sent a request, which browsers and pools open in advance.
 * It would also wait for connections that were busy when the close began.
 */
export class Connections {
  readonly #open = new Set<Socket>();
  /**
   * Read for every request, but changed only per connection.
   * If a weak map keeps changing, every garbage collection scans all of it.
   */
  readonly #activity = new WeakMap<Socket, Activity>();
  /**
   * Answers that wait for earlier answers of their connection. Each connection that ever had one keeps its
   * set.
   */
  readonly #queued = new WeakMap<Socket, Set<ServerResponse>>();
  readonly #ofAddress = new Counter();
  #closing = false;

  /**
   * `maxOfAddress`: maximum number of connections per remote address (see `addressGroup`).
   * Further connections are closed immediately.
   */
  constructor(server: Server, maxOfAddress: number) {
    server.on('connection', socket => {
      if (this.#closing || !this.#countAddress(socket, maxOfAddress)) {
        socket.destroy();
        return;
      }
      this.#add(socket);
    });
  }

  /**
   * Adds a connection from another replica, which the cluster listener accepted. It counts for no address.
   */
  adopt(socket: Socket): void {
    if (this.#closing) socket.destroy();
    else this.#add(socket);
  }

  #add(socket: Socket): void {
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
  }

  #countAddress(socket: Socket, max: number): boolean {
    const address = addressGroup(socket.remoteAddress);
    if (address === null) return true;
    if (this.#ofAddress.get(address) >= max) return false;
    this.#ofAddress.add(address);
    socket.once('close', () => this.#ofAddress.add(address, -1));
    return true;
  }

  open(): Iterable<Socket> {
    return this.#open;
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  /**
   * Registers a request that waits behind others of its connection.
   * Returns false if the queue is full or the connection is closed.
   * Node buffers the answers of waiting requests, however large, until their turn.
   * A response that can be written immediately has a socket, and needs no registration.
   */
  mayWait(socket: Socket, response: ServerResponse): boolean {
    const queued = this.#queuedOf(socket);
    if (socket.destroyed || queued.size >= LIMITS.pipelinedRequests) return false;
    queued.add(response);
    // Counted in addition to the request itself, whose answer may be complete long before it can be written.
    this.requestBegan(socket);
    response.once('close', () => {
      queued.delete(response);
      this.requestEnded(socket);
    });
    return true;
  }

  #queuedOf(socket: Socket): Set<ServerResponse> {
    const known = this.#queued.get(socket);
    if (known !== undefined) return known;
    const queued = new Set<ServerResponse>();
    this.#queued.set(socket, queued);
    // Node reports the end of a connection only to the response that is being written.
    socket.once('close', () => {
      for (const response of queued) if (response.socket === null) process.nextTick(tellClosed, response);
    });
    return queued;
  }

  /** Returns the buffered bytes of answers that wait behind others of their connection. */
  queuedBytes(socket: Socket): number {
    const queued = this.#queued.get(socket);
    if (queued === undefined) return 0;
    let bytes = 0;
    for (const response of queued) if (response.socket === null) bytes += response.writableLength;
    return bytes;
  }

  /** Counts a request that has arrived. Must be called once per request, like `requestEnded`. */
  requestBegan(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity === undefined) this.#activity.set(socket, { open: 1 });
    else activity.open += 1;
  }

  /** Counts a request whose answer has been written. */
  requestEnded(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity !== undefined) {
      activity.open -= 1;
      if (activity.open > 0) return;
    }
    if (this.#closing && this.#open.has(socket)) socket.destroySoon();
  }

  /** Closes idle connections now, and every other connection as soon as no request runs on it. */
  closeIdle(): void {
    this.#closing = true;
    for (const socket of this.#open) if ((this.#activity.get(socket)?.open ?? 0) <= 0) socket.destroySoon();
  }
}

/** Emits `close` on a waiting response, once, as Node does for the response that is being written. */
function tellClosed(response: ServerResponse): void {
  const told = response as ServerResponse & { _closed?: boolean };
  if (told._closed === true) return;
  told.destroyed = true;
  told._closed = true;
  told.emit('close');
}

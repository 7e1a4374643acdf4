import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { LIMITS } from '../../core/limits.ts';
import { Counter } from '../../lib/counter.ts';
import { addressGroup } from '../access/remote-address.ts';

/** Activity of a connection that has received a request. */
interface Activity {
  /** Number of requests that run or wait. */
  open: number;
  /** Number of requests that wait until the earlier ones are answered. */
  waiting: number;
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
   * Calls `serve` when the earlier requests of the connection are answered, unless the client disconnects.
   * Returns false if too many requests wait or the connection is closed.
   * Node reads on until the body of a waiting request is larger than its buffer.
   */
  queue(socket: Socket, response: ServerResponse, serve: () => void): boolean {
    const activity = this.#activityOf(socket);
    if (socket.destroyed || activity.waiting >= LIMITS.pipelinedRequests) return false;
    activity.waiting += 1;
    activity.open += 1;
    // Node gives a response its socket when its turn comes.
    response.once('socket', () => {
      // Runs after Node's own work to assign the socket.
      process.nextTick(() => {
        activity.waiting -= 1;
        if (!response.destroyed) serve();
        this.requestEnded(socket);
      });
    });
    return true;
  }

  #activityOf(socket: Socket): Activity {
    let activity = this.#activity.get(socket);
    if (activity === undefined) {
      activity = { open: 0, waiting: 0 };
      this.#activity.set(socket, activity);
    }
    return activity;
  }

  /** Counts a request that has arrived. Must be called once per request, like `requestEnded`. */
  requestBegan(socket: Socket): void {
    this.#activityOf(socket).open += 1;
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

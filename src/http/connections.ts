import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { LIMITS } from '../core/limits.ts';
import { addressGroup } from './remote-address.ts';

/** Of a connection on which a request has come. */
interface Activity {
  isBusy: boolean;
}

/**
 * The connections of a server, so that closing it waits for running requests and for nothing else. Node waits for connections
 * that never sent a request (browsers and pools open some in advance) and for those that were busy when the close began.
 */
export class Connections {
  readonly #open = new Set<Socket>();
  /** Looked up with every request and never changed by one: a weak set that is makes each collection of garbage look at all of it. */
  readonly #activity = new WeakMap<Socket, Activity>();
  /** Requests that came before the answers of those before them. */
  readonly #pipelined = new WeakMap<Socket, number>();
  readonly #ofAddress = new Map<string, number>();
  #closing = false;

  /** `maxOfAddress`: what one remote address has at a time (see `addressGroup`); one above it is closed at once. */
  constructor(server: Server, maxOfAddress: number) {
    server.on('connection', socket => {
      if (this.#closing || !this.#countAddress(socket, maxOfAddress)) {
        socket.destroy();
        return;
      }
      this.#add(socket);
    });
  }

  /** A connection of another replica, which came in elsewhere: it counts for no address. */
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
    const open = this.#ofAddress.get(address) ?? 0;
    if (open >= max) return false;
    this.#ofAddress.set(address, open + 1);
    socket.once('close', () => {
      const left = (this.#ofAddress.get(address) ?? 1) - 1;
      if (left > 0) this.#ofAddress.set(address, left);
      else this.#ofAddress.delete(address);
    });
    return true;
  }

  open(): Iterable<Socket> {
    return this.#open;
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  /**
   * Whether a request may wait behind others of its connection: node keeps their answers, however large, until it is their turn. A request
   * whose answer can be written at once has a socket.
   */
  mayWait(socket: Socket, response: ServerResponse): boolean {
    const waiting = (this.#pipelined.get(socket) ?? 0) + 1;
    if (waiting > LIMITS.pipelinedRequests) return false;
    this.#pipelined.set(socket, waiting);
    response.once('close', () => this.#pipelined.set(socket, (this.#pipelined.get(socket) ?? 1) - 1));
    return true;
  }

  /** A request has arrived on it. */
  requestBegan(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity === undefined) this.#activity.set(socket, { isBusy: true });
    else activity.isBusy = true;
  }

  /** Its answer has been written. */
  requestEnded(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity !== undefined) activity.isBusy = false;
    if (this.#closing && this.#open.has(socket)) socket.destroySoon();
  }

  /** From now on every connection ends as soon as no request runs on it. */
  closeIdle(): void {
    this.#closing = true;
    for (const socket of this.#open) if (this.#activity.get(socket)?.isBusy !== true) socket.destroySoon();
  }
}

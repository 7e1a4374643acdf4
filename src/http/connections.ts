import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { LIMITS } from '../core/limits.ts';
import { addressGroup } from './remote-address.ts';

/** Of a connection on which a request has come. */
interface Activity {
  /** Requests that run, and answers that wait for those before them. */
  open: number;
}

/**
 * The connections of a server, so that closing it waits for running requests and for nothing else. Node waits for connections
 * that never sent a request (browsers and pools open some in advance) and for those that were busy when the close began.
 */
export class Connections {
  readonly #open = new Set<Socket>();
  /** Looked up with every request and never changed by one: a weak set that is makes each collection of garbage look at all of it. */
  readonly #activity = new WeakMap<Socket, Activity>();
  /** Answers to requests that came before those before them were answered: not written yet. One set for each connection that ever had one. */
  readonly #queued = new WeakMap<Socket, Set<ServerResponse>>();
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
    const queued = this.#queuedOf(socket);
    if (socket.destroyed || queued.size >= LIMITS.pipelinedRequests) return false;
    queued.add(response);
    // Once more beside the request itself: its answer may be there long before it can be written.
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
    // Node tells the end of a connection to the answer whose turn it is, and to no other.
    socket.once('close', () => {
      for (const response of queued) if (response.socket === null) process.nextTick(tellClosed, response);
    });
    return queued;
  }

  /** What is kept of answers that wait behind others of their connection. */
  queuedBytes(socket: Socket): number {
    const queued = this.#queued.get(socket);
    if (queued === undefined) return 0;
    let bytes = 0;
    for (const response of queued) if (response.socket === null) bytes += response.writableLength;
    return bytes;
  }

  /** A request has arrived on it. To be called once for each, as `requestEnded` is. */
  requestBegan(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity === undefined) this.#activity.set(socket, { open: 1 });
    else activity.open += 1;
  }

  /** Its answer has been written. */
  requestEnded(socket: Socket): void {
    const activity = this.#activity.get(socket);
    if (activity !== undefined) {
      activity.open -= 1;
      if (activity.open > 0) return;
    }
    if (this.#closing && this.#open.has(socket)) socket.destroySoon();
  }

  /** From now on every connection ends as soon as no request runs on it. */
  closeIdle(): void {
    this.#closing = true;
    for (const socket of this.#open) if ((this.#activity.get(socket)?.open ?? 0) <= 0) socket.destroySoon();
  }
}

/** As node does it for the answer whose turn it is: once, whoever of both comes first. */
function tellClosed(response: ServerResponse): void {
  const told = response as ServerResponse & { _closed?: boolean };
  if (told._closed === true) return;
  told.destroyed = true;
  told._closed = true;
  told.emit('close');
}

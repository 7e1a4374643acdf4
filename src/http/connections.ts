import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/**
 * The connections of a server, so that closing it waits for running requests and for nothing else. Node waits for connections
 * that never sent a request (browsers and pools open some in advance) and for those that were busy when the close began.
 */
export class Connections {
  readonly #open = new Set<Socket>();
  readonly #busy = new WeakSet<Socket>();
  #closing = false;

  constructor(server: Server) {
    server.on('connection', socket => {
      if (this.#closing) {
        socket.destroy();
        return;
      }
      this.#open.add(socket);
      socket.once('close', () => this.#open.delete(socket));
    });
  }

  open(): Iterable<Socket> {
    return this.#open;
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  /** A request has arrived on it. */
  requestBegan(socket: Socket): void {
    this.#busy.add(socket);
  }

  /** Its answer has been written. */
  requestEnded(socket: Socket): void {
    this.#busy.delete(socket);
    if (this.#closing && this.#open.has(socket)) socket.destroySoon();
  }

  /** From now on every connection ends as soon as no request runs on it. */
  closeIdle(): void {
    this.#closing = true;
    for (const socket of this.#open) if (!this.#busy.has(socket)) socket.destroySoon();
  }
}
